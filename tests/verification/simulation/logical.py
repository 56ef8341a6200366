"""The task of a deterministic world: what it does depends on the order of all it has seen, and on nothing else."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from framework.core.actions import MergedWatermarks
from framework.core.events import Advance
from framework.core.task_topology import TaskWiring
from framework.execution.deterministic.announced_time import AnnouncedTime
from framework.execution.deterministic.remade import Check, Made, Visible, count, pack_released, unpack_released
from framework.execution.event_time import BEFORE_ALL, EventTime, Source
from framework.execution.reserved_stores import META
from framework.execution.timers import Due
from framework.ports import ExternalRecord, LogRow
from framework.stores.overlay import Overlay
from protocol.frames import digest_records, encode_columns, encode_headers
from protocol.ids import TopicPartition
from protocol.record_batch import RecordBatch
from tests.support.timeless import Timeless
from tests.verification.simulation.usercode import (
    CLOCK,
    COUNTS,
    MARKS,
    OF_TIMER,
    OUTSIDE,
    StageCode,
    State,
    Step,
    TimerService,
    set_timers,
    stamp,
    timed_site,
    work,
)

LAST = b"key"  # in MARKS: the key of what was processed last
ORDER = b"~order"  # in COUNTS: a hash of all that was processed, in its order
TIME = -2  # instead of a producer id: no record came, event time may have moved
NOWHERE = TopicPartition("", 0)


class LogicalStep(NamedTuple):
    """One record as it was processed."""

    partition: TopicPartition
    producer: int
    offset: int
    value: bytes
    t: int
    source: int
    draw: int = 0  # it is no watermark


class TimeStep(NamedTuple):
    """Watermarks as they were merged, or that an external ``partition`` became idle."""

    partition: TopicPartition
    producer: int
    offset: int
    value: bytes
    t: int
    marks: tuple[tuple[Source, int, bool], ...]
    draw: int = -1


Sent = tuple[TopicPartition, bytes]


def take(
    code: StageCode, counts: State, chains: State, timers: TimerService | None, value: bytes, now: int
) -> tuple[list[Sent], list[ExternalRecord]]:
    """Process one record at an event time: return what it sends to streams and to the outside."""
    draw = crc32(value, int(counts.get(ORDER) or 0))
    counts.put(ORDER, b"%d" % draw)
    sent = work(code, counts, chains, value, draw)
    if timers is not None:
        set_timers(code, counts, timers, Step(NOWHERE, 0, 0, value, draw), now)
    return sent


def fire(code: StageCode, counts: State, due: Due) -> tuple[list[Sent], list[ExternalRecord]]:
    """Fire a timer: it is part of the order, and its outputs are."""
    draw = crc32(b"%d %s" % (due.at, due.key.encode()), int(counts.get(ORDER) or 0))
    counts.put(ORDER, b"%d" % draw)
    value = b"%s%d;%s;%x" % (OF_TIMER, due.at, code.name, draw)
    streams = [(partitions[draw % len(partitions)], value) for partitions in code.streams]
    return streams, [ExternalRecord(code.external[draw % len(code.external)], None, value, 0)] if code.external else []


class LogicalSimRunner(Timeless):
    """framework.execution.deterministic.ports.LogicalRunner over the real overlay."""

    def __init__(
        self,
        code: StageCode,
        wiring: TaskWiring,
        producer: int,
        overlay: Overlay,
        froze: Callable[[int, list[LogicalStep | TimeStep]], None],
    ) -> None:
        self._code = code
        self._producer = producer
        self._counts, self._chains, self._marks = (overlay.store(store) for store in (COUNTS, COUNTS + 1, MARKS))
        self._site = timed_site(code, wiring, overlay, self._fire) if wiring.keeps_time else None
        self._meta = overlay.store(META) if wiring.keeps_time else None
        topics = dict.fromkeys(partition.topic for partition in wiring.timed_outputs)
        self._announced = AnnouncedTime(list(topics), lambda: (self._time.now, self._time.idle))
        self._froze = froze
        self._producer_name = b"%d" % producer
        self._ends = dict.fromkeys(code.external, -1)
        self._made = {partition: Made(partition) for partition in code.external}
        self.steps: list[LogicalStep | TimeStep] = []
        self.suffix = b""  # of all that goes to the outside: another one makes it another task
        self.outbox = None
        self.external_bytes = 0
        self._clear()

    def _clear(self) -> None:
        self.steps = []
        self._key = (-1, -1)  # of the record processed last
        self._frames: dict[TopicPartition, list[tuple[bytes, int, int]]] = {}
        self._external: list[ExternalRecord] = []
        self._seqs: dict[TopicPartition, int] = {}
        self._digests: dict[TopicPartition, int] = {}

    @property
    def producer_name(self) -> bytes:
        """What outputs name as their producer."""
        return self._producer_name

    @property
    def places(self) -> Mapping[TopicPartition, int]:
        """From where on outputs may stand of which the state does not tell."""
        return self._ends

    def note_end(self, partition: TopicPartition, end: int) -> None:
        """All that was sent is before ``end``."""
        if not self._made[partition].is_remaking:
            self._ends[partition] = end

    def go_on_after(
        self, released: Mapping[TopicPartition, int], digests: Mapping[TopicPartition, Sequence[Check]]
    ) -> None:
        """Drop what is outside already, if it is the same again."""
        for partition, seq in released.items():
            self._made[partition].released = max(seq, self._made[partition].released)
        for partition, checks in digests.items():
            self._made[partition].expect(checks)

    def recover(self, partition: TopicPartition, visible: Visible) -> None:
        """Drop what was found outside, if it is the same again."""
        self.go_on_after({partition: visible.last}, {})
        self._made[partition].visible = visible

    sink_t = -1

    def own_sinks(self, generation: int) -> None:
        """Do nothing."""

    def let_out(self, t: int) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Start over from the committed state."""
        self._clear()
        self._made = {partition: Made(partition) for partition in self._code.external}
        for key, value in self._marks.scan():
            if key == CLOCK:
                continue
            if key == LAST:
                t, source = value.split()
                self._key = int(t), int(source)
            elif key[:1] == b"e":
                self._ends[_partition(key[1:])] = int(value)
            elif key[:1] == b"r":
                seq, checks = unpack_released(value)
                self.go_on_after({_partition(key[1:]): seq}, {_partition(key[1:]): checks})
            elif key[:1] == b"m":
                self._made[_partition(key[1:])].seq, self._made[_partition(key[1:])].digest = map(int, value.split())
            else:
                (self._digests if key[:1] == b"d" else self._seqs)[_partition(key[1:])] = int(value)
        if self._site is not None and self._meta is not None:
            now = int(self._marks.get(CLOCK) or BEFORE_ALL)
            self._site.timers.reload(now)
            self._time.load(now, self._meta.get)
            self._announced.load(self._meta.get)

    def process_decided(self, partition: TopicPartition, rows: Sequence[LogRow], first_t: int) -> None:
        """Process rows of an external input."""
        last_t = first_t + len(rows) - 1
        if self._site is not None:
            self._announced.pass_to(last_t - 1)
            self._time.begin((OUTSIDE, partition))
        for index, row in enumerate(rows):
            self._process(
                LogicalStep(partition, OUTSIDE, row.offset, row.value or b"", first_t + index, self._producer)
            )
        if self._site is not None:
            self._time.end((OUTSIDE, partition))
            self._moved(last_t)

    def process_idle(self, partition: TopicPartition, t: int) -> None:
        """Take it that nothing comes from an external input."""
        self._before(TimeStep(partition, TIME, 0, b"", t, ()))
        self._time.set_idle((OUTSIDE, partition))
        self._moved(t)

    def process_merged(self, batches: Sequence[RecordBatch | MergedWatermarks], upto: int) -> None:
        """Process merged records and watermarks."""
        for batch in batches:
            if isinstance(batch, MergedWatermarks):
                self._before(TimeStep(NOWHERE, TIME, 0, b"", batch.t, batch.marks))
                self._time.watermarks(batch.marks)
                self._moved(batch.t)
                continue
            assert batch.logical is not None
            for index, (value, t, source) in enumerate(zip(batch.values, *batch.logical, strict=True)):
                self._process(LogicalStep(batch.source, source, batch.offset_at(index), value or b"", t, source))
        if self._site is not None:
            self._announced.pass_to(upto)

    def take_advances(self) -> list[Advance]:
        """Return and forget what consumers are to be told of event time."""
        return self._announced.take()

    @property
    def _time(self) -> EventTime:
        assert self._site is not None
        assert self._site.time is not None
        return self._site.time

    def _before(self, step: TimeStep) -> None:
        self.steps.append(step)
        self._announced.pass_to(step.t - 1)
        self._key = max(self._key, (step.t, self._producer))

    def _moved(self, t: int) -> None:
        assert self._site is not None
        self._site.timers.now = self._time.now
        self._fire()
        self._announced.changed(t)
        self._announced.pass_to(t)

    def _process(self, step: LogicalStep) -> None:
        self.steps.append(step)
        self._key = max(self._key, (step.t, step.source))
        timers = None if self._site is None else self._site.timers
        now = 0 if timers is None else timers.now
        self._send(*take(self._code, self._counts, self._chains, timers, step.value, now))
        if self._site is not None:
            self._site.advance(stamp(step.value, self._code.disorder))

    def _fire(self) -> None:
        assert self._site is not None
        while (due := self._site.timers.pop()) is not None:
            self._send(*fire(self._code, self._counts, due))

    def _send(self, streams: list[Sent], external: list[ExternalRecord]) -> None:
        for partition, value in streams:
            self._frames.setdefault(partition, []).append((value, *self._key))
        for record in external:
            seq = self._seqs[record.partition] = self._seqs.get(record.partition, 0) + 1
            named = ("grete.producer", self._producer_name)
            headers = encode_headers([named, ("grete.seq", b"%d" % seq), ("grete.t", b"%d" % self._key[0])])
            self._external.append(record._replace(value=(record.value or b"") + self.suffix, headers=headers))

    def take_frames(self) -> list[tuple[TopicPartition, int, bytes]]:
        """Return and forget the outputs to streams."""
        frames, self._frames = self._frames, {}
        taken = []
        for partition, records in frames.items():
            values, times, sources = map(list, zip(*records, strict=True))
            columns = [None] * len(values), values, [0] * len(values), None
            logical, digest = (times, sources), self._digests.get(partition, 0)
            taken.append((partition, len(values), encode_columns(*columns, logical=logical, digest=digest)))
            self._digests[partition] = digest_records(digest, *columns, logical)
        return taken

    def take_numbered(self) -> tuple[list[ExternalRecord], dict[TopicPartition, Check]]:
        """Return and forget the outputs to the outside that are not there yet, and their last seqs and digests."""
        taken, self._external = self._external, []
        return count(taken, self._made)

    @property
    def next_timer(self) -> int:
        """When event time is to be told though nothing comes, in µs."""
        return self._announced.due

    def before_freeze(self, checkpoint_id: int) -> None:
        """Put marks into the state; hand what was processed for this checkpoint to the recorder."""
        self._marks.put(LAST, b"%d %d" % self._key)
        if self._meta is not None:
            self._marks.put(CLOCK, b"%d" % self._time.now)  # not in COUNTS: records must not see when that was
            for key, value in (*self._time.save(), *self._announced.save().items()):
                self._meta.put(key, value)
        for kind, marks in self._numbers().items():
            for partition, mark in marks.items():
                self._marks.put(kind + f"{partition.partition} {partition.topic}".encode(), mark)
        steps, self.steps = self.steps, []
        self._froze(checkpoint_id, steps)

    def _numbers(self) -> dict[bytes, dict[TopicPartition, bytes]]:
        """Return the marks by kind. What had left before the restart may be made again after the commit only."""
        made = self._made.items()
        return {
            b"d": {partition: b"%d" % digest for partition, digest in self._digests.items()},
            b"s": {partition: b"%d" % seq for partition, seq in self._seqs.items()},
            b"m": {partition: b"%d %d" % (each.seq, each.digest) for partition, each in made},
            b"r": {partition: pack_released(max(each.seq, each.released), each.checks) for partition, each in made},
            b"e": {partition: b"%d" % end for partition, end in self._ends.items() if end >= 0},
        }

    def take_external(self) -> list[ExternalRecord]:
        """Return nothing: they are numbered."""
        return []

    def process_frame(self, partition: TopicPartition, offset: int, message: bytes, skip: int) -> None:
        """Refuse: frames are merged."""
        raise AssertionError(f"{partition} offset {offset}: a frame in deterministic mode")

    def process_rows(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Refuse: rows are decided."""
        raise AssertionError(f"{partition}: rows without a decision")

    def after_commit(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _partition(key: bytes) -> TopicPartition:
    number, topic = key.decode().split(" ")
    return TopicPartition(topic, int(number))
