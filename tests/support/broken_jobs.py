"""Nine jobs, each broken for real, under a real `grete up --http`: who looks at one is to find out what is wrong.

    python -m tests.support.broken_jobs [NAME | --seed N] [--http [HOST:]PORT]

Without a name one is drawn at random, and its name is not said: Ctrl-C tells it. ``broken`` is the same for tests.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from grete.api.jobs.job import Job
from grete.core.graph.task_topology import TaskWiring
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.job.topics import create_topics
from grete.ports import ExternalRecord, LogReader
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from tests.support.broken_code import ASKS, RANDOM, SERVICE, SLOW, TO_SERVICE, TO_TOPIC, TWO_STAGES
from tests.support.kafka_topics import create
from tests.support.reports import positions
from tests.verification.chaos.cluster import Cluster
from tests.verification.chaos.troubles_of_disks import can_mount, fill, small_disk

LIMIT_S = 180.0  # of any wait: far beyond what a slow machine needs
STEP_S = 0.05
DISK_MIB = 12
HOUR_MS = 3_600_000  # no checkpoint comes meanwhile, but one at once
FILE_BYTES_MAX = 1 << 16  # where no disk can be mounted, no file may be larger


@dataclass
class Scene:
    """A job in a directory of its own, and the `grete up` that runs it. ``url``: where that serves, once it does."""

    directory: Path
    http: str
    opened: ExitStack
    log: str = "embedded"
    settings: dict[str, int] = field(default_factory=dict)
    url: str = ""
    pid: int = 0  # of `grete up`
    wait: Callable[[float], int] | None = None
    mend: Callable[[], object] | None = None  # ends the trouble, where it can be ended from outside

    def up(self, code: str) -> None:
        """Write the job, and start it; return when it serves."""
        self.reference.write_text(code)
        self.place.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "grete.cli", "up", str(self.reference), f"--directory={self.place}"]
        command += [f"--log={self.log}", f"--http={self.http}"]
        command += [f"--set={name}={value}" for name, value in self.settings.items()]
        shown = self.directory / "screen.txt"
        with shown.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.pid, self.wait = process.pid, process.wait
        self.opened.callback(process.wait)
        self.opened.callback(process.kill)
        self.url = self.until(lambda: _url_in(shown))
        self.until(self._serves)

    @property
    def reference(self) -> Path:
        """The file with the job's code."""
        return self.directory / "payments.py"

    @property
    def place(self) -> Path:
        """The job's directory: log and state."""
        return self.directory / "disk" / "job"

    def feed(self, count: int, *last: dict[str, Any], partition: int = 0, keys: Sequence[bytes] = (b"ann",)) -> None:
        """Append payments of these keys, in turn, to a partition, and then some that are not like them."""
        values = [json.dumps(each).encode() for each in (*({"cents": n % 100} for n in range(count)), *last)]
        if self.log != "embedded":
            producer = Producer({"bootstrap.servers": self.log.removeprefix("kafka://")})
            for value in values:
                producer.produce("payments", value, b"ann", partition=partition)
            assert producer.flush(LIMIT_S) == 0
            return
        with closing(JobDirectory(self.place).open_log()) as log:
            create_topics(self.job(), log)
            place = TopicPartition("payments", partition)
            log.produce(
                0, 0, [ExternalRecord(place, key, value, 1) for key, value in zip(cycle(keys), values, strict=False)]
            )
            log.poll()

    def job(self) -> Job:
        """Return the job."""
        return load_job(str(self.reference))

    def status(self) -> dict[str, Any]:
        """Return the content of /status.json."""
        with urllib.request.urlopen(f"{self.url}/status.json", timeout=LIMIT_S) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def ended(self, by: signal.Signals) -> int:
        """End `grete up` by a signal; return its exit code."""
        assert self.wait is not None
        os.kill(self.pid, by)
        return self.wait(LIMIT_S)

    def tasks(self) -> list[dict[str, Any]]:
        """Return the reports of the tasks."""
        return [task for worker in self.status()["workers"] for task in worker["tasks"].values()]

    def task(self) -> dict[str, Any]:
        """Return the report of the last task; {} while no worker has one, as before a member has partitions."""
        tasks = self.tasks()
        return tasks[-1] if tasks else {}

    def positions(self) -> dict[str, int]:
        """Return "topic[partition]" → the offset that the last task has committed."""
        return positions(self.task()) if self.task() else {}

    def running(self) -> None:
        """Wait until the task takes input."""
        self.until(lambda: self.task().get("status") == "running")

    def until(self, look: Callable[[], Any]) -> Any:
        """Look again and again until there is something; fail after the limit, with what is on the screen."""
        deadline = time.monotonic() + LIMIT_S
        while not (found := look()):
            assert time.monotonic() < deadline, (self.directory / "screen.txt").read_text()
            time.sleep(STEP_S)
        return found

    def _serves(self) -> bool:
        return self.status() is not None


def _url_in(path: Path) -> str | None:
    found = re.search(r"http://\S+:\d+", path.read_text())
    return None if found is None else found[0]


# --- The nine ---


def killed_sink(scene: Scene) -> None:
    """The service that gets the outputs dies."""
    service = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    scene.opened.callback(service.stdout.close)
    scene.opened.callback(service.wait)
    scene.opened.callback(service.kill)
    scene.up(TO_SERVICE.replace("URL", f"http://127.0.0.1:{int(service.stdout.readline())}/totals"))
    scene.feed(10)
    scene.until(lambda: scene.positions() == {"payments[0]": 10} and scene.task()["settled"])
    service.kill()
    service.wait()
    scene.feed(10)


def poisoned_record(scene: Scene) -> None:
    """One record has no amount."""
    scene.up(TO_TOPIC)
    scene.feed(10, {"euros": 5})


def slow_stage(scene: Scene) -> None:
    """The second stage takes 20 ms for each record."""
    scene.up(SLOW)
    scene.running()
    scene.feed(20_000, keys=[b"%d" % number for number in range(100)])


def hot_key(scene: Scene) -> None:
    """The second stage takes 20 ms for each record of one of a hundred keys, which has every fourth record."""
    scene.up(SLOW.replace("time.sleep(0.02)", 'time.sleep(0.02 if record.key == "ann" else 0)'))
    scene.running()
    scene.feed(40_000, keys=[b"%d" % number if number % 4 else b"ann" for number in range(132)])


def full_disk(scene: Scene) -> None:
    """The disk with the job's log and state is full; where none can be mounted, no file may grow."""
    disk = scene.directory / "disk"
    if mounts := can_mount():
        scene.opened.enter_context(small_disk(disk, DISK_MIB))
    scene.up(TO_TOPIC)
    scene.feed(3_000)
    scene.until(lambda: scene.positions() == {"payments[0]": 3_000})
    if mounts:
        fill(disk)
    else:
        resource.prlimit(scene.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
    (worker,) = scene.status()["workers"]
    os.kill(worker["pid"], signal.SIGKILL)


def broker_away(scene: Scene) -> None:
    """The only broker does not answer any more."""
    cluster = scene.opened.enter_context(Cluster(scene.directory / "kafka"))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, NewTopic("payments", 1))
    scene.log = f"kafka://{cluster.bootstrap}"
    scene.up(TO_TOPIC)
    scene.feed(10)
    scene.until(lambda: scene.positions() == {"payments[0]": 10})
    cluster.freeze(0)


def not_deterministic(scene: Scene) -> None:
    """A deterministic task sends random numbers; a worker is killed when they are visible and not committed."""
    scene.settings["checkpoint_interval_ms"] = HOUR_MS
    scene.up(RANDOM)
    scene.running()
    fed = 0
    with closing(JobDirectory(scene.place).open_log()) as log:
        (task,) = all_wirings(scene.job())
        while _committed(log, task) == fed:  # the checkpoint of a start may come behind the look, and have them
            scene.running()
            fed += 10
            scene.feed(10)
            scene.until(lambda: log.bounds(TopicPartition("numbered", 0))[1] == fed)  # noqa: B023  # of this turn
            if _committed(log, task) < fed:
                pid = scene.status()["workers"][0]["pid"]
                os.kill(pid, signal.SIGKILL)
                scene.until(lambda: scene.status()["workers"][0]["pid"] != pid)  # noqa: B023  # of this turn


def frozen_worker(scene: Scene) -> None:
    """The process of one of two workers is stopped, and the other one has records."""
    scene.up(TWO_STAGES)
    scene.until(lambda: [task["status"] for task in scene.tasks()] == ["running"] * 4)
    pid = scene.status()["workers"][1]["pid"]
    os.kill(pid, signal.SIGSTOP)
    scene.mend = partial(os.kill, pid, signal.SIGCONT)
    scene.opened.callback(os.kill, pid, signal.SIGCONT)
    scene.feed(10)


def blocking_code(scene: Scene) -> None:
    """The code asks a service that does not answer."""
    scene.up(ASKS)
    scene.running()
    scene.mend = (scene.directory / "answer").touch
    scene.feed(1)


def _committed(log: LogReader, task: TaskWiring) -> int:
    found = last_commit(log, task.changelog)
    return 0 if found is None else sum(at.offset for at in found.commit.external)


BROKEN: dict[str, Callable[[Scene], None]] = {
    each.__name__: each
    for each in (
        killed_sink,
        poisoned_record,
        slow_stage,
        hot_key,
        full_disk,
        broker_away,
        not_deterministic,
        frozen_worker,
        blocking_code,
    )
}


@contextmanager
def broken(name: str, directory: Path, http: str = "0") -> Iterator[Scene]:
    """Break a job in an empty directory; yield it while `grete up` runs it."""
    with ExitStack() as opened:
        scene = Scene(directory, http, opened)
        BROKEN[name](scene)
        yield scene


def main() -> None:
    """Run one until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.broken_jobs", description=__doc__)
    parser.add_argument("name", nargs="?", choices=BROKEN, help="which one; without it, one is drawn")
    parser.add_argument("--seed", type=int, default=None, help="of the draw")
    parser.add_argument("--http", default="8080", help="where it serves: [HOST:]PORT")
    arguments = parser.parse_args()
    name = arguments.name or random.Random(arguments.seed).choice([*BROKEN])
    directory = Path(tempfile.mkdtemp(prefix="grete-broken-"))
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with broken(name, directory, arguments.http) as scene:
            _say(f"a job is broken: {scene.url}/status.json, {scene.url}/metrics; Ctrl-C tells what was done to it")
            signal.pause()
    except KeyboardInterrupt:
        _say(f"\n{name}: {BROKEN[name].__doc__}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # it is a script


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
