"""Several processes start a job at once, with one code or with two: the first in the log's order pins.

Each is a real process that has decided what to pin, and then waits while another one does, or is killed.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import EMBEDDED, LogAddress
from grete.state.pins.pinning import DEFINED
from grete.state.pins.unbound import BEFORE
from grete.testing.broker import Broker
from tests.cli.test_state_commands import grete
from tests.cli.test_taken_back import NEW, OLD, OTHER

Pinned = tuple[bytes | None, bytes | None]
LOGS = (EMBEDDED, pytest.param("kafka", marks=pytest.mark.kafka))


class Start:
    """A process that starts a job; it waits before it pins."""

    def __init__(self, code: Path, directory: Path, log: str) -> None:
        command = [sys.executable, "-m", "tests.state.pinning_host", str(code), str(directory), log]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self) -> str:
        """Return the next line of it."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def goes_on(self) -> str:
        """Let it pin; return how that ends."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.says()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


class Race:
    """A new job, and the processes that start it."""

    def __init__(self, folder: Path, log: str, ended: ExitStack) -> None:
        self.folder, self.log, self._ended = folder, log, ended
        self.code = {name: self._code(name, *changes) for name, changes in (("a", NEW), ("b", OTHER))}

    def _code(self, name: str, *changes: tuple[str, str]) -> Path:
        unique = self.folder.name.replace("_", "-")
        named = [
            ('"payments", key=utf8, value=int64', f'"{unique}-payments", key=utf8, value=json(int)'),
            ('"totals"', f'"{unique}-totals"'),
            ("add-up", unique),
        ]
        text, path = OLD.replace("MODE", "aligned"), self.folder / f"{name}.py"
        for old, new in (*named, *changes):
            text = text.replace(old, new)
        path.write_text(text)
        return path

    def start(self, name: str) -> Start:
        """Start code, up to where it would pin."""
        start = Start(self.code[name], self.folder / "job", self.log)
        self._ended.callback(start.kill)
        assert start.says() == "read"
        return start

    def pinned(self) -> Pinned:
        """Return the definition and the note beside it."""
        job = load_job(str(self.code["a"]))
        directory = JobDirectory(self.folder / "job", address=LogAddress(self.log))
        with closing(directory.open_log()) as log:
            metadata = log.read_metadata(job.name)
            return metadata.meta_get(DEFINED), metadata.meta_get(BEFORE)

    def run(self, name: str, *lines: str) -> str:
        """Run code over some payments; return what its store holds."""
        payments, topic = self.folder / "payments.txt", f"{self.folder.name.replace('_', '-')}-payments"
        payments.write_text("".join(f"{line}\n" for line in lines))
        where = f"--directory={self.folder / 'job'}", f"--log={self.log}"
        grete("run", str(self.code[name]), f"--input={topic}={payments}", "--keys", *where)
        return grete("state", "scan", str(self.code[name]), "sums", *where).strip()


@pytest.fixture(params=LOGS)
def race(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Race]:
    """Return a new job on each log; its processes are ended."""
    log = EMBEDDED
    if request.param != EMBEDDED:
        broker: Broker = request.getfixturevalue("kafka_broker")
        log = f"kafka://{broker.bootstrap}"
        topic = f"{tmp_path.name.replace('_', '-')}-payments"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 1)])[topic].result()
    with ExitStack() as ended:
        yield Race(tmp_path, log, ended)


@pytest.mark.parametrize("late", ["a", "b"])
def test_the_first_code_in_the_log_is_the_one_that_is_pinned(race: Race, late: str) -> None:
    """The other start says so, and has changed nothing: what a worker of the first code makes is read by that."""
    first, second = race.start("b" if late == "a" else "a"), race.start(late)
    assert first.goes_on() == "pinned"
    before = race.pinned()
    told = second.goes_on()
    assert told.startswith("TransientError job ")
    assert "was started at the same time with other code" in told
    assert "another definition" in told
    assert race.pinned() == before


def test_the_same_code_is_pinned_once(race: Race) -> None:
    """A worker that comes late leaves the note beside it: what the first has made meanwhile binds."""
    first, second = race.start("a"), race.start("a")
    assert first.goes_on() == "pinned"
    before = race.pinned()
    assert race.run("a", "ann\t2") == 'ann\t{"cents": 2, "count": 1}'
    assert second.goes_on() == "pinned"
    assert race.pinned() == before


def test_a_start_that_is_killed_before_it_pins_leaves_the_job_to_others(race: Race) -> None:
    """Nothing of its code is there, whichever of them it was."""
    killed, other = race.start("a"), race.start("b")
    killed.kill()
    assert race.pinned() == (None, None)
    assert other.goes_on() == "pinned"
    assert race.run("b", "ann\t2") == 'ann\t{"cents": 2, "last": 0}'
