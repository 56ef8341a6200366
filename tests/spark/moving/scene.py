"""A job of all that moves with its keys, over some records; what it holds and what it has sent."""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from grete.execution.build import store_names
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.logs.partition_reader import rows
from grete.ports import ExternalRecord, JobLog
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.spark.format.options import LogSpec
from grete.spark.moving.spark_mover import SparkMover
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.snapshots import Snapshot, contents, segments, snapshots
from grete.state.write.moving.entries import MovedEntries
from grete.state.write.moving.mover import Mover
from grete.state.write.rescale import rescale
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.spark.backfill.scene import NOW_MS, Silent
from tests.support.draining import drain

SETTINGS = Settings(checkpoint_interval_ms=100, event_time_idle_ms=600)
CLUSTER = "local[2,3]"  # that of the tests' session
CODE = """
from grete import HoppingWindow, Input, IntervalJoin, Job, Key, Output, Pair, Record, SessionWindow, SlidingWindow
from grete import Store, TableJoin, Task, Timer, Timers, Topic, TumblingWindow, VersionedStore, Window, int64, utf8

orders = Topic("NAME-orders", key=utf8, value=int64)
summed = Topic("NAME-summed", key=utf8, value=int64)
told = Topic("NAME-told", key=utf8, value=int64)


class Keep(Task):
    orders = Input(orders)
    sums = Store("sums", key=utf8, value=int64)
    parts = Store("parts", key=Key(utf8, int64), value=int64)
    recent = Store("recent", key=utf8, value=int64, ttl_ms=1_000)
    both = TableJoin("both", utf8, int64, int64, how="left")
    blocks = TumblingWindow("blocks", 70, key=utf8, value=int64, grace_ms=20)
    hops = HoppingWindow("hops", 60, 20, key=utf8, value=int64, grace_ms=10)
    near = SlidingWindow("near", 30, key=utf8, value=int64)
    visits = SessionWindow("visits", 40, key=utf8, value=int64, merge=int.__add__, grace_ms=5)
    met = IntervalJoin("met", before_ms=40, after_ms=90, key=utf8, left=int64, right=int64, how="outer", grace_ms=5)
    known = VersionedStore("known", utf8, int64, retention_ms=100)
    patience = Timers()
    reminders = Timers(clock="wall", key=Key(utf8, int64))
    summed = Output(summed)
    told = Output(told)

    def process(self, record: Record[str, int]) -> None:
        key, value = record.key, record.value
        total = self.sums.get(key, 0) + value
        self.sums.put(key, total)
        if value == 9:
            self.sums.delete(key)
        self.parts.put((key, value % 3), value)
        self.recent.put(key, value)
        put = self.both.put_left if value % 2 else self.both.put_right
        put(key, record.timestamp, None if value == 8 else value)
        for window in (self.blocks, self.hops, self.near, self.visits):
            if not window.update(key, record.timestamp, lambda sum_: (sum_ or 0) + value):
                self.told.send(f"late {window.name} {key}", value)
        meet = self.met.put_left if value % 2 else self.met.put_right
        if not meet(key, record.timestamp, value):
            self.told.send(f"late met {key}", value)
        self.told.send(f"known {key}", self.known.get(key, record.timestamp - 100, -1))
        self.known.put(key, record.timestamp, value)
        self.patience.schedule(record.timestamp + 700, key)
        self.reminders.schedule(record.timestamp + 1_000_000_000, (key, value))
        self.summed.send(key, total)

    def on_timer(self, timer: Timer) -> None:
        self.told.send(f"timer {timer.key}", timer.at)

    def on_join(self, pair: Pair[str, int, int]) -> None:
        self.told.send(f"{pair.name} {pair.key}", 10 * (pair.left or 0) + (pair.right or 0))

    def on_window(self, window: Window[str, int]) -> None:
        self.told.send(f"{window.name} {window.key} {window.start}", window.value)


class Count(Task):
    summed = Input(summed)
    counts = Store("counts", key=utf8, value=int64)
    told = Output(told)

    def process(self, record: Record[str, int]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)
        self.told.send(f"sum {record.key}", record.value)


job = Job("NAME", stages=[Keep, Count], partitions=COUNT)
"""

Orders = Sequence[tuple[str, int, int]]  # key, value, timestamp
State = dict[tuple[str, int, int, bytes], bytes]  # stage, partition, store, key → value
Sent = Counter[tuple[bytes | None, bytes | None, int]]  # key, value and timestamp


def made(count: int, seed: int, begin: int) -> Orders:
    """Return orders of 60 customers, the last ones, of all of them, of one time."""
    rng = random.Random(seed)
    found = [(f"c{rng.randrange(60)}", rng.randrange(10), NOW_MS + begin + 3 * number) for number in range(count)]
    return found + [(f"c{number}", number % 10, NOW_MS + begin + 3 * count) for number in range(60)]


class Moving:
    """The job in a directory, with as many partitions as its code says."""

    def __init__(
        self,
        directory: Path,
        name: str,
        partitions: int,
        log: str = "embedded",
        changes: Mapping[str, str] | None = None,
    ) -> None:
        """Write the code, in which ``changes`` are made; open the log."""
        directory.mkdir(exist_ok=True)
        self.directory, self.name, self.address = directory, name, LogAddress(log)
        self.reference = str(directory / f"{name}_{partitions}.py".replace("-", "_"))
        text = CODE.replace("NAME", name).replace("COUNT", str(partitions))
        for before, after in (changes or {}).items():
            text = text.replace(before, after)
        Path(self.reference).write_text(text)
        self.job = load_job(self.reference)
        self.job_directory = JobDirectory(directory / "job", address=self.address)
        self.log: JobLog = self.job_directory.open_log()
        self.where = LogSpec(log, "", str(self.job_directory.directory / "log.db"))

    def of(self, partitions: int) -> "Moving":
        """Return the same with other code; this one's log is closed."""
        self.log.close()
        return Moving(self.directory, self.name, partitions, self.address.url)

    def copy(self, directory: Path) -> "Moving":
        """Return a copy of a stopped job with an embedded log."""
        self.log.close()
        shutil.copytree(self.directory, directory)
        self.log = self.job_directory.open_log()
        return Moving(directory, self.name, self.job.partitions)

    def started(self) -> LocalJob:
        """Start workers."""
        return LocalJob(
            self.job, self.reference, self.job_directory, SETTINGS, inputs=OutsideInputs([f"{self.name}-orders"])
        )

    def feed(self, *orders: Orders) -> None:
        """Write orders, by their keys."""
        records = [
            ExternalRecord(
                TopicPartition(f"{self.name}-orders", partition_of(key.encode(), self.job.partitions)),
                key.encode(),
                value.to_bytes(8, "big"),
                at,
            )
            for each in orders
            for key, value, at in each
        ]
        self.log.open_metadata(self.job.name).produce_with_meta(records, {})

    def run(self, *orders: Orders) -> Self:
        """Let real workers process orders, and stop them."""
        prepare(self.job, self.log, self.job_directory, SETTINGS, [f"{self.name}-orders"])
        self.feed(*orders)
        with self.started() as local:
            drain(local)
            local.stop()
        return self

    def rescale(self, partitions: int, mover: Mover | None = None) -> MovedEntries:
        """Rescale it."""
        embedded = self.address.embedded
        return rescale(self.log, self.job, partitions, SETTINGS, own_topics=embedded, mover=mover)

    def mover(self) -> SparkMover:
        """Return the mover that works on Spark."""
        return SparkMover(CLUSTER, self.where, self.where, None, Silent())

    def state(self) -> State:
        """Return all that the tasks have committed."""
        return state_of(self, snapshots(self.log, self.job))

    def sent(self, count: int = 0) -> Sent:
        """Return key, value and timestamp of what has been sent outside, once there are that many."""
        end_s = time.monotonic() + 60
        while True:
            topic = f"{self.name}-told"
            places = [TopicPartition(topic, number) for number in range(self.log.partitions(topic) or 0)]
            found = Counter(
                (row.key, row.value, row.timestamp_ms)
                for place in places
                for row in rows(self.log, place, *self.log.bounds(place))
            )
            if found.total() >= count or time.monotonic() > end_s:
                return found
            self.log.wait(50)

    def files_taken(self) -> int:
        """Return the number of tasks whose workers have taken the files that Spark's executors have left."""
        logs = (log.read_text() for log in map(self.job_directory.worker_log, range(self.job.workers)) if log.exists())
        return sum(log.count("state taken from files of a backfill") for log in logs)


def state_of(moving: Moving, found: Sequence[Snapshot]) -> State:
    """Return all entries of the tasks at these snapshots."""
    state: State = {}
    for (stage, partition), snapshot in zip(moving.job.tasks(), found, strict=True):
        stores = contents(segments(moving.log, snapshot), frozenset(store_names(stage)))
        for store, entries in stores.items():
            for key, (value, _) in entries.items():
                if value is not None:
                    state[stage.name, partition, store, key] = value
    return state


def fresh_name() -> str:
    """Return a name that no other job on a broker has."""
    return f"moving-{os.urandom(5).hex()}"
