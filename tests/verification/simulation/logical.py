"""The task of a deterministic world: what it does depends on the order of all it has seen, and on nothing else."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from framework.execution.deterministic.remade import Check, Made, Visible, count, pack_released, unpack_released
from framework.execution.ports import Timeless
from framework.execution.reserved_stores import TIMERS
from framework.execution.timers import NEVER, Due, TimerQueue
from framework.ports import ExternalRecord, LogRow
from framework.stores.overlay import Overlay
from protocol.frames import digest_records, encode_columns, encode_headers
from protocol.ids import TopicPartition
from protocol.record_batch import RecordBatch
from tests.verification.simulation.usercode import COUNTS, MARKS, OUTSIDE, StageCode, State, TimerService, work

LAST = b"key"  # in MARKS: the key of what was processed last
ORDER = b"~order"  # in COUNTS: a hash of all that was processed, in its order
OF_TIMER = b"~"  # where others have the ident of their record
TIME = -2  # instead of a producer id: no record came, time went on


class LogicalStep(NamedTuple):
    """One record as it was processed, or that nothing up to ``t`` was still to come."""

    partition: TopicPartition
    producer: int
    offset: int
    value: bytes
    t: int
    source: int
    draw: int = 0  # it is no watermark: those have no logical time


Sent = tuple[TopicPartition, bytes]


def take(
    code: StageCode, counts: State, chains: State, timers: TimerService | None, value: bytes, t: int
) -> tuple[list[Sent], list[ExternalRecord]]:
    """Process one record: return what it sends to streams and to the outside."""
    draw = crc32(value, int(counts.get(ORDER) or 0))
    counts.put(ORDER, b"%d" % draw)
    sent = work(code, counts, chains, value, draw)
    if timers is not None:
        now = t // 1000
        if draw % 3 == 0:
            timers.schedule("", now + draw % 40 - 3, f"k{draw % code.keys:02}")  # some are late already
        if draw % 8 == 1:
            timers.cancel("", now + draw % 40 - 3, f"k{draw // 8 % code.keys:02}")
    return sent


def fire(code: StageCode, counts: State, due: Due) -> tuple[list[Sent], list[ExternalRecord]]:
    """Fire a timer: it is part of the order, and its outputs are."""
    draw = crc32(b"%d %s" % (due.at, due.key.encode()), int(counts.get(ORDER) or 0))
    counts.put(ORDER, b"%d" % draw)
    value = b"%s;%s;%x" % (OF_TIMER, code.name, draw)
    streams = [(partitions[draw % len(partitions)], value) for partitions in code.streams]
    return streams, [ExternalRecord(code.external[draw % len(code.external)], None, value, 0)] if code.external else []


class LogicalSimRunner(Timeless):
    """runtime.deterministic.runner.LogicalRunner over the real overlay."""

    def __init__(
        self, code: StageCode, producer: int, overlay: Overlay, froze: Callable[[int, list[LogicalStep]], None]
    ) -> None:
        self._code = code
        self._producer = producer
        self._counts, self._chains, self._marks = (overlay.store(store) for store in (COUNTS, COUNTS + 1, MARKS))
        self._timers = TimerQueue(overlay.store(TIMERS)) if code.timers else None
        self._froze = froze
        self._producer_name = b"%d" % producer
        self._ends = dict.fromkeys(code.external, -1)
        self._made = {partition: Made(partition) for partition in code.external}
        self.steps: list[LogicalStep] = []
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

    def reset(self) -> None:
        """Start over from the committed state."""
        self._clear()
        self._made = {partition: Made(partition) for partition in self._code.external}
        for key, value in self._marks.scan():
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
        if self._timers is not None:
            self._timers.reload(-1)

    def process_decided(self, partition: TopicPartition, rows: Sequence[LogRow], first_t: int) -> None:
        """Process rows of an external input."""
        for index, row in enumerate(rows):
            self._process(
                LogicalStep(partition, OUTSIDE, row.offset, row.value or b"", first_t + index, self._producer)
            )
        self._pass(first_t + len(rows) - 1)

    def process_merged(self, batches: Sequence[RecordBatch], upto: int) -> None:
        """Process merged records, and let time go on."""
        for batch in batches:
            assert batch.logical is not None
            for index, (value, t, source) in enumerate(zip(batch.values, *batch.logical, strict=True)):
                self._process(LogicalStep(batch.source, source, batch.offset_at(index), value or b"", t, source))
        self._pass(upto)

    def _pass(self, upto: int) -> None:
        if self._timers is not None:
            self._fire(upto)
            self.steps.append(LogicalStep(TopicPartition("", 0), TIME, 0, b"", upto, 0))

    def _process(self, step: LogicalStep) -> None:
        self._fire(step.t - 1)
        self.steps.append(step)
        self._key = max(self._key, (step.t, step.source))
        self._send(*take(self._code, self._counts, self._chains, self._timers, step.value, step.t))

    def _fire(self, upto: int) -> None:
        if self._timers is None:
            return
        self._timers.now = upto // 1000
        while (due := self._timers.pop()) is not None:
            self._key = max(self._key, (due.at * 1000, self._producer))
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
        """When a timer may be due, in µs."""
        return 1 << 62 if self._timers is None or self._timers.due >= NEVER else max(self._timers.due * 1000, 0)

    def before_freeze(self, checkpoint_id: int) -> None:
        """Put marks into the state; hand what was processed for this checkpoint to the recorder."""
        self._marks.put(LAST, b"%d %d" % self._key)
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
