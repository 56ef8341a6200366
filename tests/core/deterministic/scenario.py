"""A deterministic task stepped by hand: its user task keeps what it was given and sends each record on.

As in scenario.py, actions are answered at once and in order; what is in ``hold`` waits for ``release``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from zlib import crc32

from grete.core import actions as do
from grete.core import events as on
from grete.core.deterministic.task import DeterministicCore
from grete.core.graph.task_topology import TaskWiring
from grete.core.limits import Limits
from grete.protocol.control import decode_progress, decode_watermark, encode_progress, encode_watermark
from grete.protocol.envelope import Header, MessageType, decode_header, encode_header
from grete.protocol.frames import decode_columns, digest_records, encode_columns
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import CallsNote
from tests.core.scenario import LIMITS, NONCE, Scenario
from tests.core.streams import A0, A1, IN, INNER, Log, T, encoded

ALL = (1 << 31) - 1
NEVER = 1 << 62
OUTSIDE = TopicPartition("out", 0)
Seen = tuple[str, int, int]  # name, t in µs, source id


class Writer:
    """An upstream producer of one partition: frames with logical time and digests, progress messages."""

    def __init__(self, log: Log, producer: int, partition: TopicPartition = T) -> None:
        self.log = log
        self.producer = producer
        self.partition = partition
        self.generation = 1
        self.next_seq = 1
        self.digest = 0

    def send(self, *records: Seen) -> int:
        """Append one frame; return its offset."""
        names, times, sources = zip(*records, strict=True)
        columns = [None] * len(names), encoded(names), [0] * len(names), None
        header = Header(MessageType.FRAME, self.producer, self.generation, 1, self.next_seq)
        body = encode_columns(*columns, logical=(times, sources), digest=self.digest)
        self.digest, self.next_seq = digest_records(self.digest, *columns, (times, sources)), self.next_seq + len(names)
        return self.log.append(self.partition, encode_header(header) + body)

    def progress(self, t: int) -> int:
        """Append a progress message; return its offset."""
        value = encode_progress(self.producer, self.generation, 1, self.next_seq, t, ALL)
        return self.log.append(self.partition, value)

    def watermarks(self, *advances: tuple[int, int], idle: bool = False) -> int:
        """Append a message with (t, event time) pairs, idle from the last one on or not; return its offset."""
        times, watermarks = zip(*advances, strict=True)
        ours = self.producer, self.generation, 1, self.next_seq
        return self.log.append(self.partition, encode_watermark(*ours, idle, watermarks, times))

    def again(self) -> "Writer":
        """Return the next incarnation, which makes everything again."""
        after = Writer(self.log, self.producer, self.partition)
        after.generation = self.generation + 1
        return after


class Logical(Scenario):
    """One process of a deterministic task. ``processed``: what its user task was given, in order."""

    core: DeterministicCore  # type: ignore[assignment]  # the core of the other mode

    def __init__(
        self,
        log: Log,
        task: TaskWiring = INNER,
        *,
        sink: bool = False,
        releases: bool = True,
        early: bool = False,
        nonce: bytes = NONCE,
        limits: Limits = LIMITS,
    ) -> None:
        super().__init__(log, task, nonce=nonce, limits=limits)
        self.core = DeterministicCore(task, limits, releases=sink and releases, durable=early)
        self.sink, self.releases, self.early = sink, releases, early
        self.sink_t = -1  # of the last record that was made for a file or a table and waits
        self.let_out: list[int] = []  # up to when such records may leave
        self.processed: list[Seen] = []
        self.uptos: list[int] = []
        self.merged: list[tuple[do.MergedWatermarks, int]] = []  # and how many records were processed before
        self.idle: list[tuple[TopicPartition, int]] = []
        self.advances: list[on.Advance] = []  # what the code tells next
        self.calls: list[CallsNote] = []  # what the calls of the records that are processed next return
        self.rows: list[str] = []  # of the external input, from offset 0 on
        self.route: Callable[[str], TopicPartition] = lambda _: self.task.outputs[0]
        self.timer = self.wall = NEVER
        self.leaves: list[bool] = []  # whether the next calls leave timers that are due; then none does
        self.taken = 0, -1  # of what was given last, then: rows or batches, and the offset behind them
        self.waits = False  # the test lets the slices fire, by ``fire``
        self.digests: dict[TopicPartition, int] = {}
        self.seq_outside = self.digest_outside = 0
        self.outside: list[str] = []  # what has left, in order
        self._waiting: list[str] = []
        self._next_offset = -1

    def start(self) -> "Logical":
        """Start on the log as it is now."""
        partitions = (self.task.changelog, *self.core.merge.position, *self.task.external)
        bounds = {p: (self.log.start[p], len(self.log.rows[p])) for p in partitions}
        self.step(on.Start(self.mono_ms, self.nonce, "here", 2, 0, self.changelog_position, bounds))
        return self

    def step(self, event: on.Event) -> list[do.Action]:
        """Report an event and do all that follows, timers that are left among it."""
        actions = super().step(event)
        while self.core.fires and not self.waits:
            actions += self.fire()
        return actions

    def fire(self, *records: Seen) -> list[do.Action]:
        """Let a slice of timers fire, which sends these records."""
        assert self.core.fires
        begin = len(self.done)
        self._run(records, self._next_offset)
        self._settle()
        return self.done[begin:]

    def successor(self, *, same_host: bool = True, nonce: bytes = b"another process!") -> "Logical":
        """Return a process for the same task that has not started."""
        how = {"sink": self.sink, "releases": self.releases, "early": self.early}
        after = Logical(self.log, self.task, **how, nonce=nonce, limits=self.limits)
        after.mono_ms, after.rows, after.outside = self.mono_ms, self.rows, self.outside
        if same_host:
            after.store, after.changelog_position = dict(self.store), self.changelog_position
        return after

    @property
    def names(self) -> list[str]:
        """The names of the records that were processed."""
        return [name for name, _, _ in self.processed]

    def take(self, *names: str, more: bool = False) -> list[do.Action]:
        """Feed rows of the external input; ``more``: others stand behind them."""
        first = len(self.rows)
        self.rows += names
        digest = crc32(" ".join(names).encode())
        return self.step(on.ExternalBatch(IN, first, first + len(names), len(names), self.mono_ms * 1000, digest, more))

    def read(self, partition: TopicPartition | None = None, count: int = 1_000) -> list[do.Action]:
        """Feed all that is there, as one batch."""
        begin = len(self.done)
        for _ in range(count):
            ready = [p for p in ([partition] if partition else self.position) if self._has_more(p)]
            if not ready or not self.core.wants_input:
                break
            offset = self.position[ready[0]]
            self.position[ready[0]] += 1
            self.step(on.Message(ready[0], offset, *self.log.rows[ready[0]][offset]))
        self.step(on.InputRead())
        return self.done[begin:]

    def progress_messages(self, partition: TopicPartition) -> list[int]:
        """Return the times of the progress messages in a partition."""
        values = [value for _, value in self.log.rows[partition]]
        return [decode_progress(v).t for v in values if decode_header(v).type is MessageType.PROGRESS]

    def watermarks(self, partition: TopicPartition) -> list[tuple[int, int, bool]]:
        """Return (t, event time, idle) of the watermarks in a partition."""
        values = [value for _, value in self.log.rows[partition]]
        found = [decode_watermark(v) for v in values if decode_header(v).type is MessageType.WATERMARK]
        return [
            (t, watermark, message.idle and t == (message.times or ())[-1])
            for message in found
            for t, watermark in zip(message.times or (), message.watermarks, strict=True)
        ]

    def frames(self, partition: TopicPartition) -> list[tuple[int, list[int]]]:
        """Return (seq, times) of the frames in a partition."""
        values = [value for _, value in self.log.rows[partition]]
        frames = [
            (decode_header(v).seq, decode_columns(v)) for v in values if decode_header(v).type is MessageType.FRAME
        ]
        return [(seq, list(columns.logical[0])) for seq, columns in frames if columns.logical]

    # --- the world's answers ------------------------------------------------------------------------------------------

    def _answer(self, action: do.Action) -> None:
        match action:
            case do.AppendChangelog(value, _, _, before, outputs):
                self.log.append(self.task.changelog, *before)
                offset = self.log.append(self.task.changelog, value)
                leaving, self._waiting = self._waiting[:outputs], self._waiting[outputs:]
                self.outside += leaving
                mono = self.mono_ms
                self._tell(on.ChangelogAppended(offset, self.log.now_ms, mono, fenced=False, mono_us=mono * 1000))
            case do.Announce():
                pass  # what others announce with it is theirs
            case do.Produce(token, count):
                leaving, self._waiting = self._waiting[:count], self._waiting[count:]
                self.outside += leaving
                if self.acks:
                    self._tell(on.Acked(token))
            case do.ProcessExternal(partition, first, count, first_t):
                assert partition == IN
                own = self.task.producer
                self._run([(self.rows[first + i], first_t + i, own) for i in range(count)], first + count)
            case do.ProcessRecords(batches, upto):
                self.uptos.append(upto)
                self.timer = NEVER if self.timer <= upto else self.timer
                self.wall = NEVER if self.wall <= upto else self.wall
                records: list[Seen] = []
                for batch in batches:
                    if isinstance(batch, do.MergedWatermarks):
                        self.merged.append((batch, len(self.processed) + len(records)))
                        continue
                    row = zip(batch.values, *(batch.logical or ()), strict=True)
                    records += [((value or b"").decode(), t, source) for value, t, source in row]
                self._run(records)
            case do.ReleaseToSinks(t):
                self.let_out.append(t)
                self.sink_t = -1 if self.sink_t <= t else self.sink_t
            case do.ProcessIdle(partition, t):
                self.idle.append((partition, t))
                self._run([])
            case _:
                super()._answer(action)

    def _run(self, records: Sequence[Seen], next_offset: int = -1) -> None:
        self.processed += records
        left, self._next_offset = bool(self.leaves) and self.leaves.pop(0), next_offset
        done, offset = self.taken if left else (0, next_offset)
        frames: dict[TopicPartition, list[Seen]] = {}
        for record in records if self.task.outputs else ():
            frames.setdefault(self.route(record[0]), []).append(record)
        bodies = [(partition, len(each), self._body(partition, each)) for partition, each in frames.items()]
        released = []
        if self.sink and records:
            self.seq_outside += len(records)
            self.digest_outside = crc32("".join(name for name, _, _ in records).encode(), self.digest_outside)
            self._waiting += [name for name, _, _ in records]
            released = [(OUTSIDE, (self.seq_outside, self.digest_outside))]
        outputs = len(records) if self.sink else 0
        advances, self.advances = self.advances, []
        if self.early and records:
            self.sink_t = records[-1][1]
        calls, self.calls = self.calls, []
        told = advances, self.sink_t, calls, self.wall
        self._tell(on.Ran(self._open_bytes(), bodies, outputs, released, self.timer, offset, *told, left, done))

    def _body(self, partition: TopicPartition, records: Sequence[Seen]) -> bytes:
        names, times, sources = zip(*records, strict=True)
        columns = [None] * len(names), encoded(names), [0] * len(names), None
        before = self.digests.get(partition, 0)
        self.digests[partition] = digest_records(before, *columns, (times, sources))
        return encode_columns(*columns, logical=(times, sources), digest=before)


def inner(**limits: int) -> tuple[Logical, Writer, Writer]:
    """Return INNER, running, and its two producers."""
    log = Log()
    return Logical(log, INNER, limits=replace(LIMITS, **limits)).start(), Writer(log, A0), Writer(log, A1)
