"""A job in a file of its own that an audit follows, its log and real workers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.replay.audit.followed import AuditBegun, FollowedAudit
from grete.replay.audit.steps import AuditStep, WrongEntry
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob
from tests.support.dropped import when_dropped
from tests.worker.workers import LIMIT_S

SETTINGS = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
NOW_MS = time.time_ns() // 1_000_000
PARTITIONS = 2

HEAD = """
import random
from pathlib import Path
from grete import (
    ById,
    Call,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    Window,
    int64,
    utf8,
)

WRONG = Path(__file__).with_name("wrong")  # while it is there, a task is not deterministic
lines = Topic("lines", key=utf8, value=utf8)
totals = Topic("totals", key=utf8, value=int64)
"""
COUNTING = """
words = Topic("words", key=utf8, value=int64)


class Split(Task):
    read = Input(lines)
    seen = Store("seen", key=utf8, value=int64)
    out = Output(words)

    def process(self, record: Record[str, str]) -> None:
        self.seen.put(record.key, self.seen.get(record.key, 0) + 1)
        for word in record.value.split():
            self.out.send(word, 1)


class Count(Task):
    read = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, int]) -> None:
        total = self.counts.get(record.key, 0) + record.value
        if record.key == "w7" and WRONG.exists():
            total += random.randrange(1, 1 << 30)
        self.counts.put(record.key, total)
        self.out.send(record.key, total)


job = Job("followed", stages=[Split, Count], partitions=2)
"""
WINDOWS = """
class Minutes(Task):
    read = Input(lines)
    counts = TumblingWindow("counts", 60_000, key=utf8, value=int64, grace_ms=5_000)
    timers = Timers()
    fired = Store("fired", key=utf8, value=int64, ttl_ms=600_000)
    starts = Store("starts", key=utf8, value=int64)
    out = Output(totals)

    def init(self) -> None:
        self.starts.put("starts", self.starts.get("starts", 0) + 1)

    def process(self, record: Record[str, str]) -> None:
        self.counts.update(record.key, record.timestamp, lambda count: (count or 0) + 1)
        self.timers.schedule(record.timestamp + 30_000, record.key)

    def on_timer(self, timer: Timer) -> None:
        self.fired.put(timer.key, self.fired.get(timer.key, 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, window.value)


job = Job("followed", stages=[Minutes], partitions=2)
"""
DETERMINISTIC = 'partitions=2, mode="deterministic")'
LOGICAL = COUNTING.replace("partitions=2)", DETERMINISTIC)
ORDERED = """
others = Topic("others", key=utf8, value=utf8)
rates = Topic("rates", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=int64)


def twice(value: int) -> int:
    return 2 * value


class Ask(Task):
    in_flight = 8
    read = Input(lines)
    more = Input(others)
    rates = Input(rates, broadcast=True)
    ask = Call(twice, result=int64)
    known = Store("known", key=utf8, value=utf8)
    last = Store("last", key=utf8, value=utf8)
    out = Output(words)

    async def process(self, record: Record[str, str]) -> None:
        if record.topic.endswith("rates"):
            self.known.put("rate", f"{record.key} {record.value}")
            return
        answer = await self.ask(len(self.known.get("rate", "")))
        self.last.put(record.key, f"{record.topic} {self.ctx.random().random()} {self.last.get(record.key, '')[:20]}")
        for word in record.value.split():
            self.out.send(word, answer)


class Rate(Task):
    read = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, int]) -> None:
        self.counts.put(record.key, 3 * self.counts.get(record.key, 0) % 1_000_003 + record.value)
        self.out.send(record.key, record.value)


class Cut(Task):
    read = Input(others)
    sizes = Store("sizes", key=utf8, value=int64)

    def process_batch(self, records: list[Record[str, str]]) -> None:
        for record in records:
            self.sizes.put(record.key, self.sizes.get(record.key, 0) + len(records))


job = Job("followed", stages=[Ask, Rate, Cut], partitions=2, mode="deterministic")
"""
TIMED = """
words = Topic("words", key=utf8, value=int64)


class Delay(Task):
    read = Input(lines, deduplicate=ById(lambda record: record.value, horizon_ms=2_000))
    waiting = Store("waiting", key=utf8, value=int64)
    patience = Timers()
    reminders = Timers(clock="wall")
    reminded = Store("reminded", key=utf8, value=int64)
    out = Output(words)

    def process(self, record: Record[str, str]) -> None:
        self.waiting.put(record.key, len(record.value))
        self.patience.schedule(record.timestamp + 700, record.key)
        self.reminders.schedule(self.ctx.now_us() // 1_000 + 30, record.key)

    def on_timer(self, timer: Timer) -> None:
        if timer.clock == "wall":
            self.reminded.put(timer.key, self.reminded.get(timer.key, 0) + 1)
        else:
            self.out.send(timer.key, self.waiting.get(timer.key, 0))


class Minutes(Task):
    read = Input(words)
    counts = TumblingWindow("counts", 5_000, key=utf8, value=int64, grace_ms=1_000)
    recent = Store("recent", key=utf8, value=int64, ttl_ms=10_000)
    out = Output(totals)

    def process(self, record: Record[str, int]) -> None:
        self.counts.update(record.key, record.timestamp, lambda count: (count or 0) + record.value)
        self.recent.put(record.key, record.timestamp)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, window.value)


job = Job("followed", stages=[Delay, Minutes], partitions=2, mode="deterministic")
"""


class Scene:
    """A job, its log and its records; record ``n`` has a key and three words that follow from ``n``."""

    def __init__(self, directory: Path, text: str = COUNTING, log: str = "embedded", prefix: str = "") -> None:
        """Write the job, make its input; ``prefix``: before the names of job and topics, on a shared broker."""
        directory.mkdir(exist_ok=True)
        self.file = directory / "job.py"
        self.file.write_text((HEAD + text).replace('Topic("', f'Topic("{prefix}').replace('Job("', f'Job("{prefix}'))
        self.wrong = directory / "wrong"
        self.reference = str(self.file)
        self.job = load_job(self.reference)
        self.job_directory = JobDirectory(directory / "place", address=LogAddress(log))
        self.audit_directory = directory / "audit"
        self.log = self.job_directory.open_log()
        when_dropped(self, self.log.close)
        read = {topic for stage in self.job.stages for topic in self.job.topology().externals_of(stage.ordinal)}
        self.topics = sorted(read)
        for topic in self.topics:
            self.log.create_topic(topic, PARTITIONS, plain=True)
        self._next = 0

    @contextmanager
    def running(self) -> Iterator[LocalJob]:
        """Run real workers within the block."""
        with LocalJob(self.job, self.reference, self.job_directory, SETTINGS) as local:
            yield local
            local.stop()

    def feed(self, local: LocalJob, count: int) -> None:
        """Append records."""
        records = []
        for number in range(self._next, self._next + count):
            key = f"k{number * 7 % 23}".encode()
            text = " ".join(f"w{(number * step) % 29}" for step in (3, 5, 11))
            place = TopicPartition(self.topics[number % len(self.topics)], partition_of(key, PARTITIONS))
            at = NOW_MS + number * 500 - (number % 9) * 1_000  # some are late
            records.append(ExternalRecord(place, key, text.encode(), at))
        self._next += count
        local.metadata.produce_with_meta(records, {})

    def fed_and_drained(self, local: LocalJob, count: int, kill: int | None = None) -> None:
        """Append records, kill a worker if one is named, and wait until all is committed."""
        self.feed(local, count)
        if kill is not None:
            local.poll(20)
            local.supervisor.kill(kill)
        ends, deadline = local.ends(), time.monotonic() + LIMIT_S
        while not local.drained(ends):
            assert time.monotonic() < deadline, local.checkpoint_ids()
            local.poll(20)

    def audit(self, share: float = 1.0) -> FollowedAudit:
        """Open the audit."""
        return FollowedAudit(self.job, self.log, SETTINGS, self.audit_directory, share)


class Looked:
    """The findings of repeated looks."""

    def __init__(self) -> None:
        self.begun: list[AuditBegun] = []
        self.steps: list[AuditStep] = []
        self.last: AuditStep | AuditBegun | None = None

    @property
    def wrong(self) -> int:
        return sum(step.wrong.total() for step in self.steps)

    @property
    def keys(self) -> int:
        return sum(step.keys for step in self.steps)

    @property
    def records(self) -> int:
        return sum(step.records for step in self.steps)

    @property
    def differences(self) -> list[WrongEntry]:
        return [difference for step in self.steps for difference in step.differences]

    def look(self, audit: FollowedAudit) -> bool:
        """Look once; return whether there was something new."""
        found = self.last = audit.look()
        if isinstance(found, AuditBegun):
            self.begun.append(found)
        elif found is not None:
            self.steps.append(found)
        return found is not None

    def until_begun(self, audit: FollowedAudit, scene: Scene, local: LocalJob) -> None:
        """Let the job work and look: tasks that go by event time begin where their producers have been."""
        deadline = time.monotonic() + LIMIT_S
        while not self.begun:
            assert time.monotonic() < deadline, "the audit does not begin"
            scene.feed(local, 5)
            local.poll(20)
            self.look(audit)

    def to_end(self, audit: FollowedAudit) -> None:
        """Look until all that is committed now has been compared: idle workers commit new checkpoints all the time."""
        while self.look(audit):
            if isinstance(self.last, AuditStep) and self.last.caught_up:
                return
