"""`grete incident`: a task that a record halts is taken home in one file, and fails there as it did."""

import json
import zipfile
from pathlib import Path

import pytest

from grete.testing.broker import Broker
from tests.cli.changed_incident import IncidentChanged
from tests.cli.test_kafka import Cluster
from tests.cli.test_run import grete, start
from tests.worker.workers import LIMIT_S

TWO_STAGES = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8
payments = Topic("NAME-payments", key=utf8, value=json(dict[str, int]))
amounts = Topic("NAME-amounts", key=utf8, value=json(dict[str, int]))
totals = Topic("NAME-totals", key=utf8, value=int64)

class Parse(Task):
    payments = Input(payments)
    out = Output(amounts)
    def process(self, record: Record[str, dict[str, int]]) -> None:
        self.out.send(record.key, record.value)

class AddUp(Task):
    amounts = Input(amounts)
    sums = Store("sums", key=utf8, value=int64)
    out = Output(totals)
    def process(self, record: Record[str, dict[str, int]]) -> None:
        total = self.sums.get(record.key, 0) + record.value["cents"]
        self.sums.put(record.key, total)
        self.out.send(record.key, total)

job = Job("NAME", stages=[Parse, AddUp])
"""
MENDED = ('record.value["cents"]', 'record.value.get("cents", 0)')
GOOD = 'ann\t{"cents": 5}\nbob\t{"cents": 7}\n'
BAD = 'ann\t{"cents": 2}\nbob\t{"dollars": 1}\nann\t{"cents": 2}\n'

TIMED = """
from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, TumblingWindow, Window, int64, utf8
lines = Topic("lines", key=utf8, value=utf8)
told = Topic("told", key=utf8, value=utf8)
refused = Topic("refused", key=utf8, value=utf8)

class Tell(Task):
    lines = Input(lines)
    seen = Store("seen", key=utf8, value=int64)
    window = TumblingWindow("per", size_ms=5, key=utf8, value=int64)
    timers = Timers()
    out = Output(told)
    def process(self, record: Record[str, str]) -> None:
        n = self.seen.get(record.key, 0) + 1
        self.seen.put(record.key, n)
        self.timers.schedule(self.ctx.now() + 3, record.key)
        self.window.update(record.key, record.timestamp, lambda n: (n or 0) + 1)
        self.out.send(record.key, f"{n} {record.value} {self.ctx.uuid()}")
    def on_timer(self, timer: Timer) -> None:
        self.out.send(timer.key, f"timer {timer.at} {self.ctx.random().random()}")
    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, f"window {window.value}")

job = Job("timed", stages=[Tell], mode="deterministic")
"""

CALLS = """
from pathlib import Path
from grete import Call, Input, Job, Output, Record, Task, Topic, int64, utf8
asked = Topic("asked", key=utf8, value=utf8)
answers = Topic("answers", key=utf8, value=int64)
CALLED = Path(FOLDER) / "called"

def count(text: str) -> int:
    with CALLED.open("a") as file:
        file.write(text)
    return CALLED.stat().st_size

class Ask(Task):
    asked = Input(asked)
    count = Call(count, result=int64)
    out = Output(answers)
    async def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, await self.count(record.value))

job = Job("calls", stages=[Ask], mode="deterministic")
"""


class Home:
    """A folder with a job, and what its commands print."""

    def __init__(self, folder: Path, code: str, name: str = "shop", log: str = "embedded") -> None:
        self.folder, self.name, self.log = folder, name, log
        (folder / "shop.py").write_text(code.replace("NAME", name).replace("FOLDER", repr(str(folder))))

    def feed(self, topic: str, lines: str, *more: str) -> int:
        """Run the job over these lines; return the exit code."""
        command = ("run", "shop.py", f"--input={topic}=-", "--keys", "--set=restarts_max=1", f"--log={self.log}", *more)
        process = start(*command, cwd=self.folder, stdin=-1)
        process.communicate(lines, timeout=2 * LIMIT_S)
        return process.returncode

    def pack(self, *options: str) -> str:
        """Write an incident; return its name."""
        return grete("incident", "shop.py", f"--log={self.log}", *options, cwd=self.folder).splitlines()[-1].split()[-1]

    def run(self, name: str, *options: str, stdin: str = "") -> tuple[int, str]:
        """Run an incident; return exit code and what was printed."""
        process = start("incident", "run", name, *options, cwd=self.folder, stdin=-1)
        out, err = process.communicate(stdin, timeout=2 * LIMIT_S)
        return process.returncode, out + err

    def everything(self) -> dict[str, bytes]:
        """Return the content of the job's directory."""
        found = (path for path in (self.folder / ".grete").rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def halted(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a job that has counted two records, and halts at its fourth."""
    home = Home(tmp_path_factory.mktemp("halted"), TWO_STAGES)
    assert home.feed("shop-payments", GOOD) == 0
    assert home.feed("shop-payments", BAD) == 4
    return home


@pytest.fixture(scope="module")
def packed(halted: Home) -> Path:
    """Return the incident of its second stage, which the worker's log names."""
    before = halted.everything()
    found = halted.folder / halted.pack()
    assert halted.everything() == before  # it was read only
    return found


def failed_as_it_did(home: Home, name: str) -> None:
    """Check that the task of an incident fails in the same record, and not with mended code."""
    code, out = home.run(name)
    assert code == 1
    assert "KeyError: 'cents'" in out
    assert 'total = self.sums.get(record.key, 0) + record.value["cents"]' in out
    assert "key b'bob', value b'{\"dollars\":1}'" in out
    assert f"{home.name}-totals[0]  key b'ann', value b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07'" in out  # 5 + 2
    mended = (home.folder / "shop.py").read_text().replace(*MENDED)
    (home.folder / "mended.py").write_text(mended)
    code, out = home.run(name, "--job=mended.py", "--json")
    assert (code, json.loads(out)["error"]) == (0, None)


def test_a_record_that_halts_a_task_halts_it_again(halted: Home, packed: Path) -> None:
    """Embedded log, aligned mode, behind a stream: same error at the same record, with the line of the user's code."""
    assert packed.name.startswith("incident-shop-add-up-0-")
    assert packed.stat().st_mode & 0o077 == 0  # it holds what the job holds
    failed_as_it_did(halted, packed.name)
    shown = grete("incident", "show", packed.name, cwd=halted.folder)
    assert "store sums" in shown
    assert "input shop.parse.shop-amounts.add-up[0]" in shown
    assert "KeyError: 'cents'" in shown
    manifest = json.loads(grete("incident", "show", packed.name, "--json", cwd=halted.folder))
    assert (manifest["format"], manifest["task"], manifest["settings"]["restarts_max"]) == (1, "add-up-0", 10)
    assert set(manifest["code"]["files"]) == {"shop.py"}


@pytest.mark.kafka
def test_an_incident_of_a_job_on_kafka(kafka_broker: Broker, tmp_path: Path) -> None:
    """The same from a broker; the address has no place in a run, which reads the file alone."""
    cluster = Cluster(kafka_broker.bootstrap, tmp_path)
    home = Home(tmp_path, TWO_STAGES, cluster.name, cluster.log)
    cluster.make(f"{cluster.name}-payments", 1)
    assert home.feed(f"{cluster.name}-payments", GOOD) == 0
    assert home.feed(f"{cluster.name}-payments", BAD) == 4
    failed_as_it_did(home, home.pack("--task=add-up-0"))


def test_the_debugger_opens_in_the_task(halted: Home, packed: Path) -> None:
    """--pdb: at the line that raised, with its variables; what is typed there runs."""
    _, out = halted.run(packed.name, "--pdb", stdin="p 'seen', record.value\nq\n")
    assert "('seen', {'dollars': 1})" in out


def test_a_deterministic_task_is_compared_byte_by_byte(tmp_path: Path) -> None:
    """From its genesis: timers, windows, chance and idle inputs come out as they were, and so does the state."""
    home = Home(tmp_path, TIMED)
    for text in ("to", "be", "or"):
        assert home.feed("lines", f"a\t{text}\nb\t{text}\n") == 0
    name = home.pack("--at=0")
    code, out = home.run(name, "--json")
    found = json.loads(out)
    assert (code, found["error"], found["state_different"]) == (0, None, 0)
    assert found["compared"] == found["same"] > 6  # timers and windows among them
    assert found["state_compared"] >= 2
    other = (tmp_path / "shop.py").read_text().replace("{n} {record.value}", "{n + 1} {record.value}")
    (tmp_path / "other.py").write_text(other)
    code, out = home.run(name, "--job=other.py")
    assert code == 1
    assert "first difference: in the log: key b'a', value b'1 to " in out
    assert "made again: key b'a', value b'2 to " in out


def test_joins_in_aligned_mode(tmp_path: Path) -> None:
    """Outputs are looked up in the log; a difference there is told, and is no failure."""
    grete("run", "tasks.interval_join", "--input=orders=-", "--keys", cwd=tmp_path, stdin="1\ttea\n2\tsalt\n")
    grete("run", "tasks.interval_join", "--input=payments=-", "--keys", "--drain", cwd=tmp_path, stdin="1\tann\n")
    grete("incident", "tasks.interval_join", "--at=0", "-o", "join.zip", "--no-code", cwd=tmp_path)
    process = start("incident", "run", "join.zip", cwd=tmp_path)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert "made with --no-code: give the code of job 'payments' with --job" in err
    out = grete("incident", "run", "join.zip", "--job=tasks.interval_join", cwd=tmp_path)
    assert "paid-orders[0]: 1 output; 1 of 1 are as in the log" in out  # that none has paid for 2 was told by --drain
    assert "value b'tea: paid by ann'" in out


def test_recorded_calls_are_not_made_again(tmp_path: Path) -> None:
    """Their results come from the file. A call without one is refused, and is made where --calls says so."""
    home = Home(tmp_path, CALLS)
    assert home.feed("asked", "a\tone\nb\tthree\n") == 0
    called = (tmp_path / "called").read_text()
    code, out = home.run(home.pack("--at=0", "--output=all.zip"), "--json")
    found = json.loads(out)
    assert (code, found["compared"], found["same"]) == (0, 2, 2)
    assert (tmp_path / "called").read_text() == called
    assert len(called) == len("onethree")
    with IncidentChanged(tmp_path / "all.zip", tmp_path / "none.zip") as changed:
        changed.empty(changed.manifest["changelog"]["part"])  # decisions and results
    code, out = home.run("none.zip")
    assert code == 1
    assert "run with --calls to let it be made" in out
    assert (tmp_path / "called").read_text() == called
    code, out = home.run("none.zip", "--calls", "--json")
    assert json.loads(out)["error"] is None
    assert len((tmp_path / "called").read_text()) == 2 * len("onethree")


def test_without_values_there_is_nothing_to_read(halted: Home) -> None:
    """--no-values: no key, value or error text is in the file; it is shown, and refused by `run`."""
    name = halted.pack("--no-values", "--no-code", "--output=hidden.zip")
    with zipfile.ZipFile(halted.folder / name) as packed:
        content = b"".join(packed.read(each) for each in packed.namelist())
    for secret in (b"bob", b"cents", b"dollars", b"KeyError"):
        assert secret not in content
    assert "no: lengths and digests" in grete("incident", "show", name, cwd=halted.folder)
    code, out = halted.run(name)
    assert code == 2
    assert "was made with --no-values" in out


def refused(home: Home, *options: str) -> str:
    """Return the error of a pack that is refused."""
    process = start("incident", "shop.py", *options, cwd=home.folder)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2, err
    return err


def test_what_cannot_be_packed_says_why(halted: Home, packed: Path) -> None:
    """An unknown task or checkpoint, a file that is there, a stream that has gone on."""
    assert "has no task 'sum-0': it has parse-0, add-up-0" in refused(halted, "--task=sum-0")
    assert "has not committed checkpoint 7" in refused(halted, "--at=7")
    assert "exists: name another file" in refused(halted, f"--output={packed.name}")
    assert "take the newest checkpoint, without --at" in refused(halted, "--at=0")


def test_a_large_state_is_refused_and_large_input_is_cut(tmp_path: Path) -> None:
    """--max-mib bounds the file: state is needed as a whole; input is cut, and both commands say where."""
    home = Home(tmp_path, TIMED.replace("self.seen.put(record.key, n)", "self.seen.put(record.key * 700_000, n)"))
    assert home.feed("lines", "a\tone\nb\ttwo\n") == 0
    assert home.feed("lines", "a\t" + "x" * 700_000 + "\nb\t" + "y" * 700_000 + "\n") == 0
    error = refused(home, "--max-mib=1")
    assert "at checkpoint" in error
    assert "seen: 1,400,016" in error
    assert "--max-mib 1: raise it" in error
    name = home.pack("--max-mib=1", "--at=0")
    code, out = home.run(name)
    assert "(cut at 3 of 4)" in out
    assert (code, "without an error" in out) == (0, True)
