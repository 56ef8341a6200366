"""The cost of a killed process by the size of its job: ``python -m benchmarks.damage [tasks=1,2,4,8] …``.

A chain of stages on Kafka, exactly once, each with a count by key as its state and with other keys than the stage
before, so that each task sends to all tasks behind. A process for each partition; ``rate=200`` records a second,
``interval=1000`` ms between checkpoints, ``kills=4``. Each kill (SIGKILL) is at another part of the interval, then all
is drained, so what the user's code did again is counted for each task: it counts its calls in shared memory, which
outlives it. The outputs are read as any consumer reads them, and each must have come once.
WRITE=1 puts table and picture into the docs.
"""

import itertools
import mmap
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.latency.pictures import begin, figure_of, save
from benchmarks.results import Cell, Table
from benchmarks.running import console, keep, say_where, taken
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import KAFKA, LogAddress
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob
from tests.verification.chaos.cluster import Cluster

COLUMNS = [
    "stages",
    "tasks a stage",
    "mode",
    "records again",
    "in % of an interval's",
    "tasks that did some again",
    "ms without an output",
    "the same without a kill",
]
MODES = {"aligned": "#b3541e", "deterministic": "#1f6f8b"}
KEYS = 1_000
BESIDE_S = 2.5  # of load before and behind a kill
WAIT_S = 120.0
STEP_MS = 5.0
IMAGES = Path(__file__).parents[1] / "docs" / "images"
JOB = """
import mmap

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.protocol.partitioner import partition_of

with open({calls!r}, "r+b") as file:
    CALLS = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
TOPICS = [Topic(f"{run}-{{number}}", key=utf8, value=utf8) for number in range({stages} + 1)]


def stage(number: int) -> type[Task]:
    class Pass(Task):
        given = Input(TOPICS[number])
        seen = Store("seen", key=utf8, value=int64)
        out = Output(TOPICS[number + 1])

        def process(self, record: Record[str, str]) -> None:
            CALLS[number * {tasks} + partition_of(record.key.encode(), {tasks})] += 1
            self.seen.put(record.key, self.seen.get(record.key, 0) + 1)
            self.out.send(str((int(record.key) * 7 + 1) % {keys}), record.value)

    Pass.__name__ = f"Pass{{number}}"
    return Pass


job = Job("{run}", stages=[stage(number) for number in range({stages})], partitions={tasks}, mode="{mode}")
"""


class Asked(NamedTuple):
    """A cell."""

    mode: str
    stages: int
    tasks: int
    interval_ms: int
    rate: int
    kills: int


class Scene:
    """A job that runs, its input, its calls by task and its outputs."""

    def __init__(self, asked: Asked, local: LocalJob, servers: str, run: str, calls: memoryview) -> None:
        """``calls``: of the code, by stage and task."""
        self.asked, self._local, self._servers, self._run, self._calls = asked, local, servers, run, calls
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 1, "log_level": 5, "partitioner": "murmur2_random"}
        )
        self.sent, self._due = 0, [0] * len(calls)

    def load(self, seconds: float) -> None:
        """Send records for so long, each with its number, while the workers are looked after."""
        begun_s, first = time.monotonic(), self.sent
        while (passed_s := time.monotonic() - begun_s) < seconds:
            while self.sent < first + int(passed_s * self.asked.rate):
                key = self.sent * 7_919 % KEYS
                self._producer.produce(f"{self._run}-0", key=str(key), value=str(self.sent))
                self.sent += 1
                for stage in range(self.asked.stages):
                    self._due[stage * self.asked.tasks + partition_of(b"%d" % key, self.asked.tasks)] += 1
                    key = (key * 7 + 1) % KEYS
            self._producer.poll(0)
            self._local.poll(STEP_MS)

    def kill(self, partition: int) -> None:
        """Kill a process; the supervisor starts another."""
        self._local.supervisor.kill(partition)

    def drain(self) -> None:
        """Wait until all is committed, and through all stages. Raises SystemExit if that takes too long."""
        self._producer.flush(WAIT_S)
        by, ends = time.monotonic() + WAIT_S, self._local.ends()
        while not self._local.drained(ends) or self._local.records_through(ends)[0] < self.sent:
            self._local.poll(STEP_MS)
            if time.monotonic() > by:
                shown = self._local.records_through(ends), list(self._local.supervisor.news)
                raise SystemExit(f"{self.asked}: {shown} after {WAIT_S:.0f} s: the run does not count")

    def again(self) -> list[int]:
        """Return the calls of the code beyond the one that each record needs, by stage and task."""
        return [calls - due for calls, due in zip(self._calls, self._due, strict=True)]

    def stamps(self) -> list[float]:
        """Return the times at which the broker got the outputs, in s since 1970, in order.

        Raises SystemExit unless all came, once.
        """
        own = {"group.id": "reader", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        reader = Consumer({"bootstrap.servers": self._servers, **own})
        topic = f"{self._run}-{self.asked.stages}"
        reader.assign([TopicPartition(topic, number, 0) for number in range(self.asked.tasks)])
        stamps, numbers, by = list[float](), Counter[bytes](), time.monotonic() + WAIT_S
        while len(stamps) < self.sent and time.monotonic() < by:
            for message in reader.consume(5_000, 0.2):
                if message.error() is None and (value := message.value()) is not None:
                    stamps.append(message.timestamp()[1] / 1_000)
                    numbers[value] += 1
        reader.close()
        if len(stamps) != self.sent or len(numbers) != self.sent:
            raise SystemExit(f"{self.asked}: {len(stamps)} outputs, {len(numbers)} of {self.sent}")
        return sorted(stamps)


@contextmanager
def scene(asked: Asked, folder: Path) -> Iterator[Scene]:
    """Yield a job whose tasks all run, on a broker of its own; end both."""
    run = f"damage-{asked.mode}-{asked.stages}-{asked.tasks}"
    with Cluster(folder / "kafka") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        config = {"message.timestamp.type": "LogAppendTime"}
        ends = [NewTopic(f"{run}-{number}", asked.tasks, config=config) for number in (0, asked.stages)]
        for done in admin.create_topics(ends).values():
            done.result(60)
        file, job = folder / "calls", folder / "damage_job.py"
        file.write_bytes(bytes(8 * asked.stages * asked.tasks))
        own = {"calls": str(file), "run": run, "stages": asked.stages, "tasks": asked.tasks, "mode": asked.mode}
        job.write_text(JOB.format(**own, keys=KEYS))
        os.environ["PYTHONHASHSEED"] = "0"  # a deterministic job asks for it
        directory = JobDirectory(folder / "job", address=LogAddress(KAFKA + cluster.bootstrap))
        settings = Settings(checkpoint_interval_ms=asked.interval_ms)
        with file.open("r+b") as opened, LocalJob(load_job(str(job)), str(job), directory, settings) as local:
            while not local.supervisor.takes_input:
                local.poll(STEP_MS)
            yield Scene(asked, local, cluster.bootstrap, run, memoryview(mmap.mmap(opened.fileno(), 0)).cast("q"))
            local.stop()


def longest(stamps: Sequence[float], first_s: float, last_s: float) -> float:
    """Return the longest time without an output between two times, in ms."""
    within = [first_s, *(stamp for stamp in stamps if first_s <= stamp <= last_s)]
    return 1_000 * max(after - before for before, after in itertools.pairwise(within))


def measure(asked: Asked, folder: Path) -> list[Cell]:
    """Return the row of a cell: medians of its kills."""
    rounds, again, tasks = list[tuple[float, float]](), list[int](), list[int]()
    with scene(asked, folder) as here:
        here.load(BESIDE_S)
        here.drain()
        before = here.again()
        if any(before):
            raise SystemExit(f"{asked}: calls again without a kill: {before}: the run does not count")
        for number in range(asked.kills + 1):  # the first is without one
            begun_s = time.time()
            here.load(BESIDE_S + number * asked.interval_ms / 1_000 / asked.kills)
            if number:
                here.kill(number % asked.tasks)
            here.load(2 * BESIDE_S)
            here.drain()
            rounds.append((begun_s + 1.0, time.time()))  # drained: every wait within has ended with an output
            now = here.again()
            if number:
                more = [after - old for after, old in zip(now, before, strict=True)]
                again.append(sum(more))
                tasks.append(sum(each > 0 for each in more))
            before = now
        stamps = here.stamps()
    pauses = [longest(stamps, *each) for each in rounds]
    share = 100 * statistics.median(again) / (asked.rate * asked.stages * asked.interval_ms / 1_000)
    did = f"{statistics.median(tasks):.0f} of {asked.stages * asked.tasks}"
    return [round(statistics.median(again)), round(share), did, round(statistics.median(pauses[1:])), round(pauses[0])]


def _draw(rows: Sequence[Sequence[Cell]], interval_ms: int) -> None:
    begin(IMAGES)
    figure, panels = figure_of(1, 2)
    for panel, column, label in zip(panels, (4, 6), ("records again, % of an interval's", COLUMNS[6]), strict=True):
        for mode, colour in MODES.items():
            for stages, style in ((1, "o:"), (2, "o--"), (4, "o-")):
                own = [row for row in rows if row[0] == stages and row[2] == mode]
                text = f"{mode}, {stages} stages"
                panel.plot([row[1] for row in own], [row[column] for row in own], style, color=colour, label=text)
        panel.set(xlabel="tasks a stage", ylabel=label, ylim=(0, None), xscale="log")
        panel.set_xticks(values := list(dict.fromkeys(row[1] for row in rows)), list(map(str, values)))
        panel.minorticks_off()
    panels[0].set_title(f"One process of the job is killed, a checkpoint each {interval_ms:,} ms", fontsize=9)
    save(figure, panels, IMAGES / "damage-size.svg")


def main(given: Mapping[str, str]) -> None:
    """Measure each cell and print its row at once."""
    say_where("confluent-kafka", "rocksdict")
    run, rows = taken("confluent-kafka", "rocksdict"), list[list[Cell]]()
    interval_ms, rate, kills = (int(given.get(*each)) for each in (("interval", 1_000), ("rate", 200), ("kills", 4)))
    for stages in map(int, given.get("stages", "1,2,4").split(",")):
        for tasks in map(int, given.get("tasks", "1,2,4,8").split(",")):
            for mode in given.get("mode", ",".join(MODES)).split(","):
                with tempfile.TemporaryDirectory(prefix="grete-damage-") as name:
                    row = measure(Asked(mode, stages, tasks, interval_ms, rate, kills), Path(name))
                rows.append([stages, tasks, mode, *row])
                console.print(*rows[-1])
    title = f"A process is killed: {rate:,} records/s, a checkpoint each {interval_ms:,} ms, medians of {kills} kills"
    keep("damage", run, [Table(title, COLUMNS, rows)])
    if os.environ.get("WRITE"):
        _draw(rows, interval_ms)


if __name__ == "__main__":
    main(dict(argument.split("=", 1) for argument in sys.argv[1:]))
