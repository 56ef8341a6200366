"""The task that runs in every simulated stage: keyed counts, a hash chain, deletes, scans, and random routing.

``work`` is a function of (record, state, draw). The draw is its only randomness, so the recorder can keep it and the
oracle can run the same record again; to the protocol the task is non-deterministic: each attempt draws again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast
from zlib import crc32

from framework.api.files import Files
from framework.api.serdes import bytes_serde
from framework.core.task_topology import TaskWiring
from framework.errors import Halted
from framework.execution.event_time import BEFORE_ALL, EventTime, event_time_of
from framework.execution.outbox import Outbox
from framework.execution.process_loops import Site
from framework.execution.reserved_stores import META, OUTBOX, TIMERS
from framework.execution.timers import Due, TimerQueue
from framework.ports import ExternalRecord, LogRow
from framework.stores.overlay import Overlay
from protocol.control import decode_watermark
from protocol.envelope import MessageType, decode_header
from protocol.errors import DecodeError
from protocol.frames import decode_columns, encode_columns
from protocol.ids import TopicPartition, split_producer_id
from tests.verification.simulation.sink import DIRECTORY
from tests.verification.simulation.world import SOURCE_KEYS, Plan, out_topic

COUNTS, CHAINS = 10, 11  # store ids
MARKS = 12  # of a deterministic task: digests of its channels, seqs outside; judged by what they do
CLOCK = b"~time"  # in COUNTS, where there are timers: the task's event time at the last freeze
LATE = b"~late"  # in COUNTS: records whose window was closed
WINDOW_MS = 16
OF_TIMER = b"~"  # begins the ident of what a timer of a deterministic task sends; then comes its time
TOLD, QUIET = -1, -2  # instead of a draw: the step is a watermark; a source that has become idle
FILES = TopicPartition("files", 0)  # where records go that the outbox writes
OUTSIDE = -1  # instead of a producer id: the record came from an external topic


class State(Protocol):
    """One store, as user code sees it."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value or None."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value."""
        ...

    def delete(self, key: bytes) -> None:
        """Delete the key."""
        ...

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield what lies between, in key order."""
        ...


@dataclass(frozen=True, slots=True)
class StageCode:
    """What ``work`` knows of its place: where its outputs may go."""

    name: bytes
    keys: int
    streams: tuple[tuple[TopicPartition, ...], ...]  # of each stream, the partitions
    external: tuple[TopicPartition, ...]  # the partitions of its external topic, if it writes one
    files: bool  # it writes files through an outbox instead (S2)
    timers: bool
    deterministic: bool
    disorder: int

    @property
    def stores(self) -> dict[int, str]:
        """Return the names of its stores by id."""
        reserved = ({TIMERS: "_timers", META: "_meta"} if self.timers else {}) | (
            {OUTBOX: "_outbox"} if self.files else {}
        )
        marks = {MARKS: "marks"} if self.deterministic else {}
        return reserved | {COUNTS: "counts", CHAINS: "chains"} | marks


class TimerService(Protocol):
    """Timers, as user code sees them."""

    def schedule(self, owner: str, at: int, key: str = "") -> None:
        """Set a timer."""
        ...

    def cancel(self, owner: str, at: int, key: str = "") -> None:
        """Remove a timer."""
        ...


class Step(NamedTuple):
    """One record as an attempt processed it: where it came from, what it was, and what was drawn for it."""

    partition: TopicPartition
    producer: int
    offset: int
    value: bytes
    draw: int


def stage_code(plan: Plan, producer: int) -> StageCode:
    """Return the code of a task's stage."""
    stage = split_producer_id(producer)[0]
    return StageCode(
        b"%d" % stage,
        plan.keys * (SOURCE_KEYS if plan.tight_layer and plan.topology.is_source(stage) else 1),
        tuple(
            tuple(TopicPartition(stream.topic, p) for p in range(stream.partitions))
            for stream in plan.topology.streams_out_of(stage)
        ),
        tuple(TopicPartition(out_topic(stage), p) for p in range(plan.out_partitions.get(stage, 0))),
        stage in plan.files,
        plan.timers,
        stage in plan.topology.deterministic,
        plan.disorder,
    )


def stamp(value: bytes, disorder: int) -> int:
    """Return the timestamp of a record: it goes with the record wherever that goes. Some partitions are denser."""
    ident = value.partition(b";")[0]
    if ident[:1] == OF_TIMER:
        return int(ident[1:])
    stage, partition, number = (*map(int, ident.split(b".")), 0, 0)[:3] if ident[:1].isdigit() else (0, 0, 0)
    return 100 + number * 3 * (1 + (partition + stage) % 3 * 2) - (crc32(ident) % disorder if disorder else 0)


def set_timers(code: StageCode, counts: State, timers: TimerService, step: "Step", now: int) -> int:
    """Set a timer or cancel one; count a record whose window is closed. ``now``: event time. Return the timestamp."""
    at, draw = stamp(step.value, code.disorder), step.draw
    if at - at % WINDOW_MS + WINDOW_MS <= now:
        counts.put(LATE, b"%d" % (int(counts.get(LATE) or 0) + 1))
    if draw % 3 == 0:
        timers.schedule("", at + 1 + draw % 16, f"k{draw % code.keys:02}")
    if draw % 8 == 1:
        timers.cancel("", at + 1 + draw % 4, f"k{draw // 8 % code.keys:02}")
    return at


def on_timer(chains: State, due: Due) -> None:
    """Fire: what a timer does depends on the order in which they fire."""
    key = due.key.encode()
    chains.put(key, b"%d" % crc32(b"%d" % due.at, int(chains.get(key) or 0)))


def work(
    code: StageCode, counts: State, chains: State, value: bytes, draw: int
) -> tuple[list[tuple[TopicPartition, bytes]], list[ExternalRecord]]:
    """Process one record ``ident;path;rest``: return what it sends to streams and to the outside."""
    ident, path, _ = value.split(b";", 2)
    path += code.name
    key = b"k%02d" % (crc32(ident) % code.keys)
    count = int(counts.get(key) or 0) + 1
    counts.put(key, b"%d" % count)
    chain = crc32(value, int(chains.get(key) or 0))
    chains.put(key, b"%d" % chain)
    if draw % 4 == 0:
        chains.delete(key)
    if draw % 7 == 0:
        counts.delete(key)
    if draw % 5 == 0:
        start = b"k%02d" % (draw // 5 % code.keys)
        for found, number in (*counts.scan(start), *chains.scan(b"", start)):
            chain = crc32(found + number, chain)
    sent = b"%s;%s;%d.%d.%x" % (ident, path, count, chain, draw)
    streams = [(partitions[(draw >> 8 * i & 255) % len(partitions)], sent) for i, partitions in enumerate(code.streams)]
    targets = code.external or ((FILES,) if code.files else ())
    external = [ExternalRecord(targets[draw % len(targets)], ident, sent, 0)] if targets else []
    return streams, external


class SimRunner:
    """The driver's Runner over the real overlay. ``froze`` gets the steps of each frozen checkpoint, in order."""

    late_records = 0  # they are part of the state here
    duplicates = 0
    progress: tuple[int, ...] = ()  # only a worker's process is watched

    def __init__(
        self,
        code: StageCode,
        wiring: TaskWiring,
        overlay: Overlay,
        draw: Callable[[], int],
        froze: Callable[[int, list[Step]], None],
        outbox: Outbox | None,
    ) -> None:
        self._code = code
        self._site = timed_site(code, wiring, overlay, self._fire) if wiring.keeps_time else None
        self._meta = overlay.store(META) if wiring.keeps_time else None
        self._outbox = outbox
        self._counts, self._chains = overlay.store(COUNTS), overlay.store(CHAINS)
        self._draw = draw
        self._froze = froze
        self.steps: list[Step] = []
        self._clear()  # the state is not to be read before the first reset: it is not restored yet

    def reset(self) -> None:
        """Start over from the committed state."""
        self._clear()
        if self._site is not None and self._meta is not None:
            now = int(self._counts.get(CLOCK) or BEFORE_ALL)
            self._site.timers.reload(now)
            self._time.load(now, self._meta.get)
        if self._outbox is not None:
            self._outbox.reload({})
            self._write = self._outbox.sender("files", Files(DIRECTORY, bytes_serde))

    def _clear(self) -> None:
        self.steps = []
        self._frames: dict[TopicPartition, list[bytes]] = {}
        self._external: list[ExternalRecord] = []
        self._external_bytes = 0

    @property
    def external_bytes(self) -> int:
        """Return the size of what waits for its checkpoint's commit."""
        return self._external_bytes + (0 if self._outbox is None else self._outbox.bytes)

    def process_frame(self, partition: TopicPartition, offset: int, message: bytes, skip: int) -> None:
        """Process the records of a frame but for the first ``skip``."""
        header = decode_header(message)
        producer = header.producer
        if header.type is MessageType.WATERMARK:
            told = decode_watermark(message)
            said = b"%d;%d;%d;%d" % (told.watermarks[-1], told.idle, header.generation, header.checkpoint_id)
            self.steps.append(Step(partition, producer, offset, said, TOLD))
            self._time.watermark((producer, partition), told.watermarks[-1], idle=told.idle)
            self._time_moved()
            return
        try:
            values = decode_columns(message).values[skip:]
        except DecodeError as error:  # as the real processor does
            raise Halted(f"{partition} at offset {offset}: {error}") from error
        self._process_all(partition, producer, [(offset, value or b"") for value in values])

    def process_rows(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Process rows of an external input."""
        self._process_all(partition, OUTSIDE, [(row.offset, row.value or b"") for row in rows])

    def _process_all(self, partition: TopicPartition, producer: int, records: list[tuple[int, bytes]]) -> None:
        """Process records of one source, as the real processor does."""
        if self._site is not None:
            self._time.begin((producer, partition))
        for offset, value in records:
            self._process(partition, producer, offset, value)
        if self._site is not None:
            self._time.end((producer, partition))
            self._time_moved()

    @property
    def _time(self) -> EventTime:
        assert self._site is not None
        assert self._site.time is not None
        return self._site.time

    def _time_moved(self) -> None:
        assert self._site is not None
        self._site.timers.now = self._time.now
        self._fire()

    def _fire(self) -> None:
        assert self._site is not None
        while (due := self._site.timers.pop()) is not None:
            on_timer(self._chains, due)

    def input_is_idle(self, partition: TopicPartition) -> None:
        """Take it that nothing comes from an external partition."""
        self.steps.append(Step(partition, OUTSIDE, -1, b"", QUIET))
        self._time.set_idle((OUTSIDE, partition))
        self._time_moved()

    @property
    def watermark(self) -> tuple[int, bool] | None:
        """Return the event time to tell consumers."""
        return None if self._site is None else (self._time.now, self._time.idle)

    def _process(self, partition: TopicPartition, producer: int, offset: int, value: bytes) -> None:
        draw = self._draw()
        self.steps.append(Step(partition, producer, offset, value, draw))
        streams, external = work(self._code, self._counts, self._chains, value, draw)
        for target, sent in streams:
            self._frames.setdefault(target, []).append(sent)
        for record in external:
            if self._outbox is not None:
                self._write(None, record.value)
            else:
                self._external.append(record)
                self._external_bytes += len(record.value or b"")
        if self._site is not None:
            timers = self._site.timers
            self._site.advance(set_timers(self._code, self._counts, timers, self.steps[-1], timers.now))

    def take_frames(self) -> list[tuple[TopicPartition, int, bytes]]:
        """Return and forget the outputs to streams."""
        frames, self._frames = self._frames, {}
        return [
            (partition, len(values), encode_columns([None] * len(values), values, [0] * len(values)))
            for partition, values in frames.items()
        ]

    def take_external(self) -> list[ExternalRecord]:
        """Return and forget the outputs to the outside."""
        external, self._external, self._external_bytes = self._external, [], 0
        return external

    def before_freeze(self, checkpoint_id: int) -> None:
        """Hand what was processed for this checkpoint to the recorder, which outlives any crash."""
        if self._outbox is not None:
            self._outbox.close_checkpoint(checkpoint_id)
        if self._meta is not None:
            self._counts.put(CLOCK, b"%d" % self._time.now)
            for key, value in self._time.save():
                self._meta.put(key, value)
        steps, self.steps = self.steps, []
        self._froze(checkpoint_id, steps)

    def after_commit(self) -> None:
        """Let the outputs of the checkpoint go to its file (S2)."""
        if self._outbox is not None:
            self._outbox.committed()

    @property
    def outbox(self) -> Outbox | None:
        """Return what waits for its files, if anything does."""
        return self._outbox

    def close(self) -> None:
        """Do nothing: nothing is open."""


def timed_site(code: StageCode, wiring: TaskWiring, overlay: Overlay, fire: Callable[[], None]) -> Site:
    """Return the real site of a task's loops, with what it needs to keep time."""
    nothing = cast("Any", None)
    timers, time = TimerQueue(overlay.store(TIMERS)), event_time_of(wiring)
    return Site(code.name.decode(), 0, overlay, nothing, nothing, timers, fire, time)
