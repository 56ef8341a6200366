"""The outputs of a deterministic task: each with the logical time of its input, and numbered for external topics."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from grete.core.graph.task_topology import TaskWiring
from grete.execution.deterministic.numbering import FORMAT, ONE, Heads, cell_of
from grete.execution.deterministic.remade import (
    Check,
    Recovered,
    RemadePartition,
    count,
    pack_digest,
    pack_released,
    unpack_digest,
    unpack_released,
)
from grete.execution.records.frame_buffer import AnyHeaders, Buffer
from grete.execution.records.output_targets import Append
from grete.execution.records.outputs import HELD_BYTES, HeldBytes
from grete.ports import ExternalRecord
from grete.protocol.frames import digest_records, encode_columns
from grete.protocol.ids import TopicPartition
from grete.stores.overlay.overlay_store import OverlayStore

TimeAndSource = tuple[int, int]  # logical time: t in µs, id of the source (D1)

AT = b"logical time"  # in META: the key of what was processed last
_KEY = struct.Struct(">qi")
_NUMBER = struct.Struct(">q")
_UNKNOWN = -1  # no seq or time is negative
_new = tuple.__new__  # a call in C: the named tuple's own ways to make one are in Python


class LogicalBuffer(Buffer):
    """The open frame of one partition, and the digest of all that went before it in its channel (D3)."""

    __slots__ = ("digest", "logical")

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(partition)
        self.digest = 0
        self.logical: list[TimeAndSource] = []

    def drop_last(self) -> None:
        """Take back the record appended last."""
        super().drop_last()
        self.logical.pop()

    def clear(self) -> None:
        """Empty all columns."""
        super().clear()
        self.logical.clear()

    def frames(self, bytes_max: int) -> Iterator[tuple[TopicPartition, int, bytes]]:
        """Yield (partition, count, body), as few frames as keep to ``bytes_max``; the digest goes on with each."""
        headers = [*self.headers, *[None] * (len(self.keys) - len(self.headers))] if any(self.headers) else None
        assert len(self.logical) == len(self.keys), f"{self.partition}: a record has no logical time"
        start = 0
        for stop in self.cuts(bytes_max):
            keys, values, times = self.keys[start:stop], self.values[start:stop], self.timestamps[start:stop]
            cells = None if headers is None else headers[start:stop]
            t, sources = zip(*self.logical[start:stop], strict=True)
            yield (
                self.partition,
                stop - start,
                encode_columns(keys, values, times, cells, logical=(t, sources), digest=self.digest),
            )
            self.digest = digest_records(self.digest, keys, values, times, cells, (t, sources))
            start = stop


class OutsidePartition:
    """A partition outside of the job: the seq sent last, and the records of the present batch (D5).

    ``end``: records sent to it are before this offset, as far as is known; -1: nothing is known.
    """

    __slots__ = ("end", "made", "partition", "seq")

    def __init__(self, made: RemadePartition, end: int) -> None:
        self.partition = made.partition
        self.made = made
        self.end = end
        self.seq = _UNKNOWN


class LogicalOutputs:
    """The logical time and the numbers of what a task sends: the OutputMode of its Outputs.

    ``at`` is the logical time that a record inherits: set it before user code runs.

    Records for topics outside are numbered for each partition from 1; what is visible already is dropped, but only if
    it is the same again (D5).
    """

    _state: OverlayStore

    def __init__(self, job: str, task: TaskWiring, *, releases: bool) -> None:
        """``releases``: output releases tell of the records outside, by digests."""
        self._releases = releases
        self.at: TimeAndSource = (0, task.producer)
        self.released: dict[TopicPartition, int] = {}
        self._checks: dict[TopicPartition, list[Check]] = {}  # of what is released
        self._made: dict[TopicPartition, RemadePartition] = {}
        self._outside: dict[TopicPartition, OutsidePartition] = {}
        self._marked: list[tuple[OutsidePartition, int]] = []
        self._one = False  # external records have one header of ours
        self.producer_name = f"{job}/{task.name}".encode()  # two jobs may write to one topic
        self._buffers: list[LogicalBuffer] = []

    def now_us(self) -> int:
        """Return the logical time, in µs."""
        return self.at[0]

    def load(self, state: OverlayStore) -> None:
        """Go on from what the state holds; the senders are created again after it."""
        self._state, self._outside, self._made = state, {}, {}
        raw, self._one = state.get(AT), state.get(ONE) is not None
        if raw is not None:
            self.at = _KEY.unpack(raw)
        for buffer in self._buffers:
            raw = state.get(digest_key(buffer.partition))
            buffer.digest = 0 if raw is None else _NUMBER.unpack(raw)[0]
        prefix = _released_key(None)
        for key, raw in state.scan(prefix, prefix + b"\xff"):
            partition, (seq, checks) = _partition_of(key[len(prefix) :]), unpack_released(raw)
            self.go_on_after({partition: seq}, {partition: checks})

    def go_on_after(
        self, released: Mapping[TopicPartition, int], digests: Mapping[TopicPartition, Sequence[Check]]
    ) -> None:
        """Drop records made again up to these seqs, which were visible before the restart; compare the digests."""
        for partition, seq in released.items():
            self.released[partition] = max(seq, self.released.get(partition, 0))
            if partition in self._made:
                self._made[partition].released = self.released[partition]
        for partition, checks in digests.items():
            self._checks.setdefault(partition, []).extend(checks)
            if partition in self._made:
                self._made[partition].expect(checks)

    def recover(self, partition: TopicPartition, visible: Recovered) -> None:
        """Drop records made again that output recovery has read, after comparing each."""
        self.go_on_after({partition: visible.last}, {})
        self._made[partition].visible = visible

    @property
    def places(self) -> Mapping[TopicPartition, int]:
        """Return the offset from which on there may be outputs that the state does not know; -1: it knows none."""
        return {partition: place.end for partition, place in self._outside.items()}

    def note_end(self, partition: TopicPartition, end: int) -> None:
        """Note that all records sent to a partition so far are before ``end``.

        It does nothing while recovered records are still to be made again: a successor must read them, too.
        """
        if not self._made[partition].is_remaking:
            self._outside[partition].end = end

    def save(self, saved: dict[bytes, bytes]) -> None:
        """Put what belongs to the state under its key. Nothing may be collected now."""
        saved[AT] = _KEY.pack(*self.at)
        # what a successor makes again from here on is compared with what is made now, so the format is state
        self._one = self._one or not any(made.checks or made.is_remaking for made in self._made.values())
        if self._one:
            saved[ONE] = FORMAT
        for buffer in self._buffers:
            if buffer.digest:
                saved[digest_key(buffer.partition)] = _NUMBER.pack(buffer.digest)
        for place in self._outside.values():
            if place.seq > 0:
                saved[_sent_key(place.partition)] = _NUMBER.pack(place.seq)
                if self._releases:
                    saved[digest_key(place.partition)] = pack_digest(place.made)
            if place.end >= 0:
                saved[_end_key(place.partition)] = _NUMBER.pack(place.end)
        # the changelog tells only of output releases since the last commit
        for partition, seq in self.released.items():
            checks = self._made[partition].checks if partition in self._made else ()
            saved[_released_key(partition)] = pack_released(seq, checks)

    @property
    def counted(self) -> frozenset[bytes]:
        """The keys of the state by which a successor numbers its next outputs outside."""
        return frozenset(key(place) for place in self._outside for key in (_sent_key, digest_key))

    def number(self, records: list[ExternalRecord]) -> tuple[list[ExternalRecord], dict[TopicPartition, Check]]:
        """Return those of the collected external records that are not visible yet, in order and with their headers.

        Also return the last seq and digest of each partition among them, if releases tell of them. Raises
        OutputsDiffer.
        """
        if self._releases or any(made.is_remaking for made in self._made.values()):
            return count(records, self._made)
        for place in self._outside.values():
            place.made.seq = max(place.made.seq, place.seq)
        return records, {}

    def mark(self) -> None:
        """Remember this moment for ``rollback``."""
        self._marked = [(place, place.seq) for place in self._outside.values()]

    def rollback(self) -> None:
        """Take back the numbers given since ``mark``."""
        for place, seq in self._marked:
            place.seq = seq

    def buffer(self, partition: TopicPartition) -> LogicalBuffer:
        """Return the open frame of a partition of a stream."""
        self._buffers.append(made := LogicalBuffer(partition))
        return made

    def stream_append(self, append: Append) -> Append:
        """Return the function that appends a record with the logical time to frames; ``append``: its other columns."""

        def append_timed(
            target: tuple[LogicalBuffer, ...],
            key: bytes | None,
            value: bytes | None,
            timestamp: int,
            headers: AnyHeaders,
        ) -> None:
            append(target, key, value, timestamp, headers)
            at = self.at
            for buffer in target:
                buffer.logical.append(at)

        return append_timed

    def external_append(
        self, held: HeldBytes, add: Callable[[ExternalRecord], None], partitions: Sequence[TopicPartition]
    ) -> tuple[Append, Sequence[OutsidePartition]]:
        """Return (append a numbered record to a partition of an external topic, the targets)."""
        heads, producer = Heads(), self.producer_name

        def append(
            place: OutsidePartition, key: bytes | None, value: bytes | None, timestamp: int, headers: AnyHeaders
        ) -> None:
            place.seq = seq = (place.seq if place.seq >= 0 else self._sent(place.partition)) + 1
            if headers or not self._one:
                cell = cell_of(tuple(headers), producer, seq, self.at[0], one=self._one)
            else:
                text = b"%d %d %b" % (seq, self.at[0], producer)
                cell = heads[len(text)] + text
            add(_new(ExternalRecord, (place.partition, key, value, timestamp, cell)))
            held.external_bytes += HELD_BYTES + len(key or b"") + len(value or b"")

        return append, [self._outside_at(partition) for partition in partitions]

    def _outside_at(self, partition: TopicPartition) -> OutsidePartition:
        place = self._outside.get(partition)
        if place is None:
            sent = self._sent(partition)
            digest = unpack_digest(self._state.get(digest_key(partition)), sent)
            made = self._made[partition] = RemadePartition(partition, sent, digest, self.released.get(partition, 0))
            made.expect(self._checks.get(partition, ()))
            place = self._outside[partition] = OutsidePartition(made, self._number(_end_key(partition), -1))
        return place

    def _sent(self, partition: TopicPartition) -> int:
        return self._number(_sent_key(partition), 0)

    def _number(self, key: bytes, default: int) -> int:
        raw = self._state.get(key)
        return default if raw is None else int(_NUMBER.unpack(raw)[0])


def logical_time_of(raw: bytes) -> int:
    """Return the logical time in µs of what was processed last, of the entry AT."""
    at, _ = _KEY.unpack(raw)
    return int(at)


def is_of_outputs(key: bytes) -> bool:
    """Tell whether an entry of META is about outputs: a number, a digest, how far they are released."""
    return key == ONE or key.startswith((b"digest ", b"sent ", b"released ", b"end "))


def digest_key(partition: TopicPartition) -> bytes:
    """Return the key of META under which the digest of what was sent to a partition is."""
    return b"digest %s" % str(partition).encode()


def _released_key(partition: TopicPartition | None) -> bytes:
    return b"released " + (b"" if partition is None else str(partition).encode())


def _end_key(partition: TopicPartition) -> bytes:
    return b"end %s" % str(partition).encode()


def _partition_of(name: bytes) -> TopicPartition:
    """Undo ``str`` of a partition."""
    topic, _, number = name.decode().rstrip("]").rpartition("[")
    return TopicPartition(topic, int(number))


def _sent_key(partition: TopicPartition) -> bytes:
    return b"sent %s" % str(partition).encode()


class WaitingOutputs:
    """Outputs to external topics that wait, in order, until the core releases them (D5).

    ``bytes``: their size, in part estimated where some of them were taken.
    """

    def __init__(self) -> None:
        self._records: list[ExternalRecord] = []
        self.bytes = 0

    def add(self, records: Sequence[ExternalRecord], size: int) -> None:
        """Note outputs that the code has made, of that many bytes in all.

        Those that were visible before a restart are dropped and do not wait: without records the size counts nothing.
        """
        self._records.extend(records)
        if records:
            self.bytes += size

    def take(self, count: int) -> list[ExternalRecord]:
        """Return the first ones, which are released: they wait no more."""
        assert count <= len(self._records), f"{count} outputs are released of {len(self._records)}"
        outputs = self._records[:count]
        if outputs:
            self.bytes -= self.bytes * len(outputs) // len(self._records)
            del self._records[:count]
        return outputs

    def check(self, held: int) -> None:
        """Assert what is true between two steps of the core, which says that that many are held."""
        waiting = len(self._records)
        assert waiting >= held, f"{held} outputs wait for a release, and {waiting} are here"
        assert bool(waiting) == (self.bytes > 0), f"{waiting} outputs in {self.bytes} bytes"
