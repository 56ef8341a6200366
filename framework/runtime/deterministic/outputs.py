"""What a task sends in deterministic mode: with the logical time of what it came from, and numbered for the outside."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from framework.api.graph import StageGraph
from framework.core.topology import Topology
from framework.ports import ExternalRecord
from framework.runtime.outputs import Append, Buffer, Headers, Outputs
from framework.settings import Settings
from framework.stores.overlay import LayeredStore
from protocol.frames import digest_records, encode_columns, encode_headers
from protocol.ids import TopicPartition

Key = tuple[int, int]  # logical time: t in µs, id of the source (D1)

AT = b"logical time"  # in META: the key of what was processed last
_KEY = struct.Struct(">qi")
_NUMBER = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_OURS = 3  # headers of an external record
_ONLY_OURS = _INT32.pack(_OURS)
_LENGTHS = [_INT32.pack(length) for length in range(32)]


class LogicalBuffer(Buffer):
    """The open frame of one partition, and the digest of all that went before it in its channel (D3)."""

    __slots__ = ("digest", "logical")

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(partition)
        self.digest = 0
        self.logical: list[Key] = []

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
        start = 0
        for stop in self._cuts(bytes_max):
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


class LogicalOutputs(Outputs):
    """All outputs of one task. ``at`` is the logical time that a record inherits: set it before user code runs.

    Records for topics outside are numbered for each partition from 1; what is released already is dropped (D5).
    """

    def __init__(
        self,
        stage: StageGraph,
        topology: Topology,
        settings: Settings,
        partitions: Callable[[str], int | None],
        producer: int,
    ) -> None:
        """``partitions`` gives the partition count of an external topic, ``producer`` is the task's own id."""
        super().__init__(stage, topology, settings, partitions)
        self.at: Key = (0, producer)
        self.released: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, int] = {}
        self._times: list[int] = []  # of the external records
        self._before_seq = _header("grete.producer", b"%d" % producer) + _name("grete.seq")
        self._streams = {
            stream.topic: [LogicalBuffer(TopicPartition(stream.topic, p)) for p in range(stream.partitions)]
            for stream in topology.streams_out_of(stage.ordinal)
        }

    def load(self, state: LayeredStore) -> None:
        """Go on from what the state holds."""
        raw = state.get(AT)
        if raw is not None:
            self.at = _KEY.unpack(raw)
        for buffer in self._buffers():
            raw = state.get(_digest_key(buffer.partition))
            buffer.digest = 0 if raw is None else _NUMBER.unpack(raw)[0]
        self._sent = {}
        prefix = _released_key(None)
        for key, raw in state.scan(prefix, prefix + b"\xff"):
            self.go_on_after({_partition_of(key[len(prefix) :]): _NUMBER.unpack(raw)[0]})

    def go_on_after(self, released: Mapping[TopicPartition, int]) -> None:
        """Drop what is made again and stood outside before the restart: up to these seqs."""
        for partition, seq in released.items():
            self.released[partition] = max(seq, self.released.get(partition, 0))

    def save(self, saved: dict[bytes, bytes]) -> None:
        """Put what belongs to the state under its key. Nothing may be collected now."""
        saved[AT] = _KEY.pack(*self.at)
        for buffer in self._buffers():
            if buffer.digest:
                saved[_digest_key(buffer.partition)] = _NUMBER.pack(buffer.digest)
        for partition, seq in self._sent.items():
            saved[_sent_key(partition)] = _NUMBER.pack(seq)
        for partition, seq in self.released.items():  # the changelog tells only of releases since the last commit
            saved[_released_key(partition)] = _NUMBER.pack(seq)

    def number(self, state: LayeredStore) -> tuple[list[ExternalRecord], dict[TopicPartition, int]]:
        """Return and forget what goes outside, in order and with its headers, and the last seq for each partition."""
        taken: list[ExternalRecord] = []
        last: dict[TopicPartition, int] = {}
        sent, released, make = self._sent, self.released, ExternalRecord._make
        before_seq, at, time_header = self._before_seq, -1, b""
        for (partition, key, value, timestamp, headers), t in zip(self._external, self._times, strict=True):
            if partition not in sent:
                raw = state.get(_sent_key(partition))
                sent[partition] = 0 if raw is None else _NUMBER.unpack(raw)[0]
            sent[partition] = seq = sent[partition] + 1
            if seq > released.get(partition, 0):
                if t != at:  # what one record has made has one time
                    text = b"%d" % t
                    at, time_header = t, _BEFORE_TIME + _LENGTHS[len(text)] + text
                number = b"%d" % seq
                ours = before_seq + _LENGTHS[len(number)] + number + time_header
                last[partition] = seq
                taken.append(make((partition, key, value, timestamp, _joined(headers, ours))))
        self.take_external()
        return taken, last

    def take_external(self) -> list[ExternalRecord]:
        """Return and forget what goes outside, as it was sent."""
        self._times.clear()
        return super().take_external()

    def rollback(self) -> None:
        """Take back all that was sent since ``mark``."""
        super().rollback()
        del self._times[len(self._external) :]

    def _buffers(self) -> Iterator[LogicalBuffer]:
        for buffers in self._streams.values():
            for buffer in buffers:
                assert isinstance(buffer, LogicalBuffer)
                yield buffer

    def _stream_append(self, streams: list[list[Buffer]]) -> tuple[Append, Sequence[tuple[Buffer, ...]]]:
        append_all, places = super()._stream_append(streams)

        def append(
            place: tuple[LogicalBuffer, ...], key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
        ) -> None:
            append_all(place, key, value, timestamp, headers)
            at = self.at
            for buffer in place:
                buffer.logical.append(at)

        return append, places

    def _external_append(self, topic: str) -> tuple[Append, Sequence[TopicPartition]]:
        append_one, places = super()._external_append(topic)
        times = self._times

        def append(
            place: TopicPartition, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
        ) -> None:
            append_one(place, key, value, timestamp, headers)
            times.append(self.at[0])

        return append, places


def _joined(theirs: bytes | None, ours: bytes) -> bytes:
    """Return one cell of the headers that the task gave and of ours."""
    if theirs is None:
        return _ONLY_OURS + ours
    return _INT32.pack(_INT32.unpack_from(theirs)[0] + _OURS) + theirs[_INT32.size :] + ours


def _name(name: str) -> bytes:
    """Return the name of a header as it stands in a cell, before the length of its value."""
    return _header(name, b"")[: -_INT32.size]


def _header(name: str, value: bytes) -> bytes:
    """Return one header as it stands in a cell."""
    return encode_headers([(name, value)])[_INT32.size :]


def _digest_key(partition: TopicPartition) -> bytes:
    return b"digest %s" % str(partition).encode()


def _released_key(partition: TopicPartition | None) -> bytes:
    return b"released " + (b"" if partition is None else str(partition).encode())


def _partition_of(name: bytes) -> TopicPartition:
    """Undo ``str`` of a partition."""
    topic, _, number = name.decode().rstrip("]").rpartition("[")
    return TopicPartition(topic, int(number))


def _sent_key(partition: TopicPartition) -> bytes:
    return b"sent %s" % str(partition).encode()


_BEFORE_TIME = _name("grete.t")
