"""Progress of a job with a dead producer: ``make bench EXPERIMENT=dead_producer [LOG=…] [SECONDS_EACH=4] [WRITE=1]``.

Two partitions, a worker each, on two machines as far as the job can tell. Lines come into both, a stage sends each to
both tasks of the next, and those number what they get. A second branch copies lines and reads no other task. Worker 0
dies, or its process is frozen, for some seconds; then it comes back. A reader outside sees which lines of the living
worker 1 get through its own task of the next stage meanwhile, and that none is missing or there twice in the end.
"""

import fcntl
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.progress import track

from benchmarks.latency.ends import receiver, sender
from benchmarks.on_kafka import make_topic
from benchmarks.results import Kept, Table, write
from benchmarks.running import console, taken
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.core.supervision.assignment import Assignment
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import EMBEDDED, IN_DIRECTORY, KAFKA, LogAddress
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.testing.broker import find_broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs

RUN, MODE = (os.environ.get(f"BENCH_{name}", "") for name in ("RUN", "MODE"))
DEAD, ALIVE = 0, 1  # partitions, and their workers
PARTITIONS = 2
RATE = 50.0  # lines a second
WARM_S = 2.0  # before the worker dies
AFTER_S = 1.0  # its death, until lines count: nothing that it has announced reaches further
TRY_S, TRIES = 0.01, 50  # for a lock that others hold for a moment
LIMIT_S = 120.0  # for anything that must come, on the busiest machine
NEVER = float("inf")
Trouble = Literal["killed", "frozen"]
KEYS = [next(f"k{n}" for n in range(100) if partition_of(b"k%d" % n, PARTITIONS) == p) for p in range(PARTITIONS)]

lines = Topic(f"bench-lines-{RUN}", key=utf8, value=utf8)
shuffled = Topic("shuffled", key=utf8, value=utf8)
numbered = Topic(f"bench-numbered-{RUN}", key=utf8, value=utf8)
copies = Topic(f"bench-copies-{RUN}", key=utf8, value=utf8)


class Split(Task):
    """Sends each line to both tasks of the next stage."""

    mode = "aligned" if MODE in ("aligned", "at-least-once") else "deterministic"
    lines = Input(lines)
    out = Output(shuffled)

    def process(self, record: Record[str, str]) -> None:
        """Send it twice."""
        for key in KEYS:
            self.out.send(key, record.value)


class Number(Task):
    """Descends from both source tasks: numbers what it gets."""

    shuffled = Input(shuffled)
    numbers = Store("numbers", key=utf8, value=int64)
    out = Output(numbered)

    def process(self, record: Record[str, str]) -> None:
        """Count, and send the line with its number."""
        number = self.numbers.get(record.key, 0) + 1
        self.numbers.put(record.key, number)
        self.out.send(record.key, f"{record.value} {number}")


class Copy(Task):
    """Another branch: descends from no other task."""

    lines = Input(lines)
    out = Output(copies)

    def process(self, record: Record[str, str]) -> None:
        """Send it where its line was."""
        self.out.send(KEYS[record.partition], record.value)


job = Job(
    f"bench-dead-{RUN}", [Split, Number, Copy], PARTITIONS, "deterministic" if MODE == "deterministic" else "aligned"
)
WAITING = ("aligned", "deterministic")  # nothing of the next stage's lines may be visible while the worker is dead
MODES = {  # as the page names them → BENCH_MODE
    "aligned": "aligned",
    "deterministic": "deterministic",
    "aligned behind deterministic": "mixed",
    "at least once": "at-least-once",
}


@dataclass
class Seen:
    """The observations of an outside reader. Lines are numbered from 0; times are of the monotonic clock, in s."""

    sent: list[float] = field(default_factory=list)
    latest: dict[tuple[str, int, int], float] = field(default_factory=dict)  # (topic, partition, line) → first seen
    repeats: Counter[str] = field(default_factory=Counter)
    counted: range = range(0)  # lines fed while the worker was dead, for long enough
    back_s: float = 0.0

    def has_come(self, topic: str, first: int) -> bool:
        """Return whether a line from this number on is through the living task."""
        return any((topic, ALIVE, line) in self.latest for line in range(first, len(self.sent)))

    def waits(self, topic: str) -> list[float]:
        """Return the time that each line of the living source took which counts, in its own partition."""
        return [self.latest[topic, ALIVE, line] - self.sent[line] for line in self._living]

    def shown(self, topic: str) -> float:
        """Return the share of these lines that were visible before the dead worker was started again."""
        return statistics.fmean(self.latest[topic, ALIVE, line] < self.back_s for line in self._living)

    @property
    def _living(self) -> list[int]:
        return [line for line in self.counted if line % PARTITIONS == ALIVE]


class Scene:
    """One run: the job under its supervisor, a writer of lines, a reader of both outputs."""

    def __init__(self, stack: ExitStack, directory: Path, address: str, mode: str, **settings: object) -> None:
        """Make topics, start the workers."""
        run = os.urandom(4).hex()
        os.environ |= {"BENCH_RUN": run, "BENCH_MODE": MODES[mode]}
        self.topics = {"numbered": f"bench-numbered-{run}", "copies": f"bench-copies-{run}"}
        source = f"bench-lines-{run}"
        kafka = address.startswith(KAFKA)
        for topic in (source, *self.topics.values()) if kafka else ():
            make_topic(address.removeprefix(KAFKA), topic, PARTITIONS)
        guarantee = "at-least-once" if mode == "at least once" else "exactly-once"
        job_directory = JobDirectory(directory, address=LogAddress(address) if kafka else IN_DIRECTORY)
        self.job = load_job(__file__)
        given = Settings(processing_guarantee=guarantee, **settings)  # type: ignore[arg-type]  # checked by msgspec
        self.running = stack.enter_context(
            LocalJob(self.job, __file__, job_directory, given, inputs=OutsideInputs([source]))
        )
        place = address if kafka else str(job_directory.directory / "log.db")
        # a process that is frozen in the queue of the embedded log's writers holds up all of them: not what is measured
        self._locks = [] if kafka else [Path(f"{place}-{name}") for name in ("queue", "lock")]
        self.writer = sender(place, source)
        self.readers = {name: receiver(place, topic, PARTITIONS) for name, topic in self.topics.items()}
        stack.callback(self.writer.close)
        for reader in self.readers.values():
            stack.callback(reader.close)
        self.seen = Seen()
        self._fed_from = NEVER

    def begin(self) -> None:
        """Feed from now on."""
        self._fed_from = time.monotonic()

    def step(self, *, feed: bool = True) -> None:
        """Let the supervisor work, send the lines that are due, take what has come."""
        self.running.supervisor.poll(1)
        now, seen = time.monotonic(), self.seen
        while feed and len(seen.sent) < (now - self._fed_from) * RATE:
            line = len(seen.sent)
            seen.sent.append(now)
            self.writer.send(line % PARTITIONS, b"%d" % line, b"%d" % line)
        for name, reader in self.readers.items():
            for partition, _, value in reader.take(0.005):
                place = name, partition, int(value.split()[0])
                if place in seen.latest:
                    seen.repeats[name] += 1
                seen.latest.setdefault(place, now)

    def until(self, what: str, done: Callable[[], bool], *, feed: bool = True) -> None:
        """Go on until something is so. Raises SystemExit if it does not come."""
        deadline = time.monotonic() + LIMIT_S
        while not done():
            if time.monotonic() > deadline:
                raise SystemExit(f"after {LIMIT_S:.0f} s still not: {what}")
            self.step(feed=feed)

    def during(self, seconds: float) -> None:
        """Go on for some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()

    def strike(self, trouble: Trouble) -> None:
        """Let worker 0 die, or freeze it; it stays so."""
        supervisor = self.running.supervisor
        if trouble == "frozen":
            process = self._frozen()
            _freeze(process)
            while not all(map(_is_free, self._locks)):
                process.send_signal(signal.SIGCONT)
                time.sleep(TRY_S)
                _freeze(process)
            return
        supervisor.kill(DEAD)
        supervisor.assign(Assignment(frozenset(range(PARTITIONS)) - {DEAD}))
        self.until("the end of worker 0", lambda: DEAD not in supervisor.workers)

    def bring_back(self, trouble: Trouble) -> None:
        """Let worker 0 go on, or its successor start."""
        if trouble == "frozen":
            self._frozen().send_signal(signal.SIGCONT)
        else:
            self.running.supervisor.assign(Assignment(frozenset(range(PARTITIONS))))

    def _frozen(self) -> "subprocess.Popen[bytes]":
        process = self.running.supervisor.process(DEAD)
        assert process is not None
        return process

    def committed(self, partition: int) -> int:
        """Return the last checkpoint that a source task has committed; -1: none."""
        at = last_commit(self.running.log, all_wirings(self.job)[partition].changelog)  # stage by stage: the first
        return -1 if at is None else at.commit.checkpoint_id

    def due(self) -> set[tuple[str, int, int]]:
        """Return the rows that must have been seen in the end: each line by both tasks, and its copy."""
        numbers = range(len(self.seen.sent))
        return {("numbered", partition, line) for line in numbers for partition in range(PARTITIONS)} | {
            ("copies", line % PARTITIONS, line) for line in numbers
        }


def _freeze(process: "subprocess.Popen[bytes]") -> None:
    """Stop it, and return when it has stopped: a system call that is under way is finished first."""
    process.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(TRY_S)


def _is_free(path: Path) -> bool:
    """Return whether a lock file was free for a moment."""
    with path.open("rb") as file:
        for _ in range(TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(TRY_S)
            else:
                return True
    return False


def measure(address: str, mode: str, trouble: Trouble, dead_s: float, **settings: object) -> Seen:
    """Run one job, and return what was seen.

    Raises SystemExit if a line is missing in the end or, exactly once, there twice; and if the next stage did not wait
    in a mode in which it does, or did in one in which it does not.
    """
    with tempfile.TemporaryDirectory(prefix="grete-dead-") as name, ExitStack() as stack:
        scene = Scene(stack, Path(name) / "job", address, mode, **settings)
        seen = scene.seen
        scene.until("all tasks take input", lambda: scene.running.supervisor.takes_input, feed=False)
        scene.begin()
        scene.until(
            "a line is through both tasks", lambda: {("numbered", p, 0) for p in (DEAD, ALIVE)} <= set(seen.latest)
        )
        scene.during(WARM_S)
        scene.strike(trouble)
        last = scene.committed(DEAD)
        scene.during(AFTER_S)
        scene.until("the living source is a checkpoint ahead", lambda: scene.committed(ALIVE) > last)
        first = len(seen.sent)
        scene.during(dead_s)
        scene.until("another branch goes on without worker 0", lambda: seen.has_come("copies", first))
        if mode not in WAITING:
            scene.until("the next stage goes on without worker 0", lambda: seen.has_come("numbered", first))
        seen.counted, seen.back_s = range(first, len(seen.sent)), time.monotonic()
        scene.bring_back(trouble)
        scene.during(WARM_S)
        due = scene.due()
        scene.until("all lines are through", lambda: due <= set(seen.latest), feed=False)
        if mode != "at least once" and (seen.repeats or set(seen.latest) != due):
            raise SystemExit(f"{mode}, {trouble}: {seen.repeats} lines came twice: the run does not count")
        if mode in WAITING and seen.shown("numbered"):
            raise SystemExit(f"{mode}, {trouble}: {seen.shown('numbered'):.0%} of the lines did not wait for worker 0")
        return seen


def row(log: str, mode: str, trouble: str, seen: Seen) -> list[int | float | str | None]:
    """Return a row of the table."""
    waits, beside = seen.waits("numbered"), seen.waits("copies")
    return [
        log, mode, trouble, f"{seen.shown('numbered'):.0%}", round(max(waits), 2), round(statistics.median(waits), 2),
        f"{seen.shown('copies'):.0%}", round(max(beside), 2),
    ]  # fmt: skip


COLUMNS = [
    "log", "mode", "worker 0 is", "visible before it is back", "longest wait, s", "median wait, s",
    "other branch: visible", "other branch: longest wait, s",
]  # fmt: skip


def main() -> None:
    """Measure all modes on both logs, or on LOG; print the table, and with WRITE=1 put it into the docs."""
    log, dead_s = os.environ.get("LOG") or "", float(os.environ.get("SECONDS_EACH") or 4)
    run = taken("confluent-kafka", "rocksdict")
    run.notes = [f"Worker 0 is away for {AFTER_S + dead_s:g} s or a little more; lines of the last {dead_s:g} count."]
    addresses = {} if log.startswith("kafka") else {"the embedded log": EMBEDDED}
    with ExitStack() as stack:
        if log.startswith(KAFKA):
            addresses["Kafka"] = log
        elif log != EMBEDDED:
            addresses["Kafka"] = KAFKA + stack.enter_context(find_broker(loaded=True)).bootstrap
        cells: list[tuple[str, str, Trouble]] = [(name, mode, "killed") for name in addresses for mode in MODES]
        cells += [(name, "aligned behind deterministic", "frozen") for name in addresses]
        rows = []
        for name, mode, trouble in track(cells, "measuring", console=console):
            rows.append(row(name, mode, trouble, measure(addresses[name], mode, trouble, dead_s)))
            console.print(*rows[-1], sep=", ", soft_wrap=True)
    run.tables = [Table("Lines of the living source, through its own task of the next stage", COLUMNS, rows)]
    if os.environ.get("WRITE"):
        write("dead-producer", Kept([run]))


if __name__ == "__main__":
    main()
