"""Pauses of a job that is changed: ``python -m benchmarks.pauses [tasks=2,8,32] [changes=rescale,apply-store,…]``.

A job of two stages runs by `grete up` on a Kafka broker of its own, and records flow. It is stopped by SIGTERM,
changed by a command, and started again, each on a machine with a name of its own (Linux, as root: `unshare --uts`).
The pause is the time from the last record of the run before to the first of the run behind it, as a reader of committed
records sees them. ``killed``: the machine of the run before dies instead.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.on_kafka import Watcher
from benchmarks.results import Cell, Table
from benchmarks.running import console, keep, taken
from tests.verification.chaos.cluster import Cluster

LIMIT_S = 300.0  # of any wait
RATE_S = 0.005  # between two records
KEYS = 1_000
FLOW_S = 8.0  # that records flow before a change: the changelogs hold some commits
STAGES = 2
OUTPUTS = 2  # partitions of the output topic
JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

WORDS = Topic("NAME-words", key=utf8, value=int64)


class Spread(Task):
    lines = Input(Topic("NAME-lines", key=utf8, value=utf8))
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, 1)


class Count(Task):
    words = Input(WORDS)
    total = Store("total", key=utf8, value=int64)
    last = Store("last", key=utf8, value=int64)
    out = Output(Topic("NAME-counts", key=utf8, value=int64))

    def process(self, record: Record[str, int]) -> None:
        count = self.total.get(record.key, 0) + 1
        self.total.put(record.key, count)
        self.last.put(record.key, count)
        self.out.send(record.key, count)


job = Job("JOB", stages=[Spread, Count], partitions=PARTITIONS)
"""
STORE_DROPPED = (
    ('    last = Store("last", key=utf8, value=int64)\n', ""),
    ("        self.last.put(record.key, count)\n", ""),
)
STAGE_BETWEEN = (
    (
        "class Count(Task):\n    words = Input(WORDS)",
        """PASSED = Topic("NAME-passed", key=utf8, value=int64)


class Pass(Task):
    words = Input(WORDS)
    out = Output(PASSED)

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value)


class Count(Task):
    words = Input(PASSED)""",
    ),
    ("[Spread, Count]", "[Spread, Count, Pass]"),
)
CHANGES = (
    "restart",
    "apply-store",
    "apply-store-killed",
    "apply-graph",
    "rescale",
    "rescale-killed",
    "fork",
    "fork-beside",
)


class Flow:
    """Records that flow into a job, unless they are ``held``, and the times at which its outputs were seen."""

    def __init__(self, bootstrap: str, name: str) -> None:
        """Begin to read; ``held`` is set."""
        self.held, self.given, self.seen_s = threading.Event(), 0, list[float]()
        self.held.set()
        self._topic, self._ending = f"{name}-lines", threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "partitioner": "murmur2_random"})
        self._bootstrap, self._lock = bootstrap, threading.Lock()
        self._watcher = Watcher(bootstrap, f"{name}-counts", OUTPUTS)
        self._threads = [threading.Thread(target=each) for each in (self._give, self._see)]
        for thread in self._threads:
            thread.start()

    def fresh(self) -> None:
        """Write with another client from now on: one that is there goes on with the partitions that it knows."""
        with self._lock:
            self._producer.flush(LIMIT_S)
            config = {"bootstrap.servers": self._bootstrap, "linger.ms": 5, "partitioner": "murmur2_random"}
            self._producer = Producer(config)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait. Raises SystemExit if it takes too long."""
        by = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > by:
                raise SystemExit(f"{what} did not come in {LIMIT_S:.0f} s: the measurement does not count")
            time.sleep(0.02)

    def use_up(self) -> None:
        """Hold the records, and wait until all that were given have come out."""
        self.held.set()
        time.sleep(2 * RATE_S)
        self._producer.flush(LIMIT_S)
        self.until(lambda: len(self.seen_s) >= self.given, "the end of the input")

    def longest_gap_s(self, begin_s: float, end_s: float) -> float:
        """Return the longest time in which no output was seen."""
        moments = [begin_s, *(at for at in self.seen_s if begin_s < at < end_s), end_s]
        return max(later - earlier for earlier, later in pairwise(moments))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self._watcher.close()

    def _give(self) -> None:
        rng = random.Random(7)
        while not self._ending.wait(RATE_S):
            with self._lock:
                if not self.held.is_set():
                    self.given += 1
                    self._producer.produce(self._topic, b"x", b"key-%d" % rng.randrange(KEYS))
                self._producer.poll(0)

    def _see(self) -> None:
        while not self._ending.is_set():
            found = [each for each in self._watcher.take(0.02) if each.error() is None]
            self.seen_s += [time.monotonic()] * len(found)


class Changed:
    """One job, its machines and its commands."""

    def __init__(self, stack: ExitStack, cluster: Cluster, folder: Path, partitions: int) -> None:
        """Make its topics; start nothing yet."""
        self.name, self.folder, self.partitions = f"pauses-{os.urandom(3).hex()}", folder, partitions
        self._bootstrap, self._stack, self._machines = cluster.bootstrap, stack, 0
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [NewTopic(f"{self.name}-lines", partitions), NewTopic(f"{self.name}-counts", OUTPUTS)]
        for made in self._admin.create_topics(topics).values():
            made.result(60)
        self.flow = stack.enter_context(Flow(cluster.bootstrap, self.name))

    def code(self, *changes: tuple[str, str], job: str = "", partitions: int = 0) -> Path:
        """Write the code of the job, changed; return the file."""
        text = JOB
        for old, new in changes:
            text = text.replace(old, new)
        text = text.replace("NAME", self.name).replace("JOB", job or self.name)
        path = self.folder / f"job_{os.urandom(3).hex()}.py"
        path.write_text(text.replace("PARTITIONS", str(partitions or self.partitions)))
        return path

    def _command(self, *arguments: str) -> list[str]:
        """Return a command on a new machine."""
        self._machines += 1
        name, own = f"machine-{self._machines}", self.folder / f"machine-{self._machines}"
        grete = [
            sys.executable,
            "-m",
            "grete.cli",
            *arguments,
            f"--log=kafka://{self._bootstrap}",
            f"--directory={own}",
        ]
        return ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh", *grete]

    def up(self, code: Path) -> "subprocess.Popen[bytes]":
        """Start the job on a machine."""
        with (self.folder / "up.log").open("ab") as said:
            started = subprocess.Popen(self._command("up", str(code)), stdout=said, stderr=said, start_new_session=True)
        self._stack.callback(self._end, started)
        return started

    def run(self, *arguments: str) -> str:
        """Run a command on a machine of its own; return what it says. Raises SystemExit if it fails."""
        done = subprocess.run(self._command(*arguments), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"grete {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def widen(self) -> None:
        """Give the input twice the partitions."""
        topic = f"{self.name}-lines"
        self._admin.create_partitions([NewPartitions(topic, 2 * self.partitions)])[topic].result(60)
        self.flow.fresh()

    def _end(self, started: "subprocess.Popen[bytes]") -> None:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def measure(cluster: Cluster, change: str, tasks: int) -> list[Cell]:
    """Return seconds: of the stop, of the command, from the start to the first record, and of the pause."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grete-pauses-")))
        job = Changed(stack, cluster, folder, tasks // STAGES)
        flow, before = job.flow, job.code()
        first = job.up(before)
        flow.held.clear()
        flow.until(lambda: bool(flow.seen_s), "the first record")
        time.sleep(FLOW_S)
        if change == "fork-beside":
            second, begun_s = job.code(job=f"{job.name}-second"), time.monotonic()
            job.run("fork", str(before), str(second))
            ended_s = time.monotonic()
            return [
                tasks,
                change,
                None,
                round(ended_s - begun_s, 1),
                None,
                round(flow.longest_gap_s(begun_s, ended_s), 1),
            ]
        if change.startswith(("rescale", "apply-graph")):
            flow.use_up()
        stopping_s = time.monotonic()
        if change.endswith("killed"):
            os.killpg(first.pid, signal.SIGKILL)
        else:
            first.send_signal(signal.SIGTERM)
        first.wait(LIMIT_S)
        stopped_s = time.monotonic()
        new = before
        if change.startswith("apply"):
            new = job.code(*(STAGE_BETWEEN if change == "apply-graph" else STORE_DROPPED))
            said = job.run("apply", str(new))
        elif change.startswith("rescale"):
            job.widen()
            keyed = ["--assume-keyed"] if job.partitions == 1 else []
            said = job.run("rescale", str(before), f"--partitions={2 * job.partitions}", *keyed)
            new = job.code(partitions=2 * job.partitions)
        elif change == "fork":
            new = job.code(job=f"{job.name}-second")
            said = job.run("fork", str(before), str(new))
        else:
            said = ""
        changed_s, last_s, before_it = time.monotonic(), flow.seen_s[-1], len(flow.seen_s)
        if os.environ.get("SAID"):
            console.print(said)
        flow.held.clear()
        last = job.up(new)
        flow.until(lambda: len(flow.seen_s) > before_it, "the first record behind the change")
        first_s = flow.seen_s[before_it]
        last.send_signal(signal.SIGTERM)
        last.wait(LIMIT_S)
    parts = stopped_s - stopping_s, changed_s - stopped_s, first_s - changed_s, first_s - last_s
    return [tasks, change, *(round(each, 1) for each in parts)]


def main(sizes: list[int], changes: list[str]) -> None:
    """Measure; WRITE=1 puts the table into the docs."""
    run, rows = taken("confluent-kafka", "rocksdict"), list[list[Cell]]()
    with tempfile.TemporaryDirectory(prefix="grete-pauses-") as folder, Cluster(Path(folder) / "kafka") as cluster:
        for change in changes:
            for tasks in sizes:
                rows.append([*measure(cluster, change, tasks), round(os.getloadavg()[0], 1)])
                console.print(*rows[-1])
    columns = ["tasks", "change", "stop, s", "command, s", "start, s", "pause, s", "load"]
    keep("pauses", run, [Table("Two stages by `grete up`, each process on another machine", columns, rows)])


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    main(
        [int(each) for each in given.get("tasks", "2,8,32").split(",")],
        given.get("changes", ",".join(CHANGES)).split(","),
    )
