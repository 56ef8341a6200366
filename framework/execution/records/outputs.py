"""Collects what a task sends: columns per partition for streams, plain records for topics outside of the job.

``sender`` compiles one Output into a closure, so that a send branches on nothing that was known at the start.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Protocol

from grete.api.jobs.graph import StageGraph
from grete.api.serdes.key import PartitionBy, partition_by
from grete.api.serdes.serde import bytes_serde, functions_of, one_key_serde
from grete.api.topics.topic import Topic, TopicPattern, uses_registry
from grete.core.graph.topology import Stream, Topology
from grete.errors import ConfigError, TaskError
from grete.execution.records.encoding import SendFunction, encoded_first, refused
from grete.execution.records.frame_buffer import AnyHeaders, Buffer
from grete.execution.records.output_targets import KNOWN_MAX, Append, Targets, TargetsOfAll, both_ends
from grete.execution.records.topic_names import NamesInMemory, TopicNames, chooser
from grete.ports import ExternalRecord
from grete.protocol.frames import TIME_MS_MAX, encode_headers
from grete.protocol.ids import TopicPartition
from grete.settings import Settings

HELD_BYTES = 200  # what an external record held in memory costs beyond its key and value
_PARTITION = itemgetter(0)  # of an ExternalRecord
_new = tuple.__new__  # a call in C: the named tuple's own ways to make one are in Python


class HeldBytes(Protocol):
    """Counts what the external records that are held in memory take."""

    external_bytes: int


class OutputMode(Protocol):
    """The part of a task's outputs that deterministic mode adds."""

    def buffer(self, partition: TopicPartition) -> Buffer:
        """Return the open frame of a partition of a stream."""

    def stream_append(self, append: Append) -> Append:
        """Return the function that appends a record to frames of ``buffer``; ``append`` appends its columns."""

    def external_append(
        self, held: HeldBytes, add: Callable[[ExternalRecord], None], partitions: Sequence[TopicPartition]
    ) -> tuple[Append, Sequence[Any]]:
        """Return (append to a partition of an external topic, the targets); a record goes to ``add``."""

    def mark(self) -> None:
        """Remember this moment for ``rollback``."""

    def rollback(self) -> None:
        """Take back what was numbered since ``mark``."""


class Outputs:
    """All outputs of one task. ``timestamp`` is what a record inherits: set it before user code runs.

    ``turn`` counts records without a key; they take partitions in turn, and as it is state a replay repeats the turns.
    """

    def __init__(
        self,
        stage: StageGraph,
        topology: Topology,
        settings: Settings,
        partitions: Callable[[str], int | None],
        *,
        drop_external: bool = False,
        mode: OutputMode | None = None,
        names: TopicNames | None = None,
    ) -> None:
        """``partitions`` gives the partition count of an external topic, None if there is no such topic.

        ``names`` knows the topics that records name; None: nothing is written there.

        ``drop_external``: what goes outside is encoded, for a serde may refuse it, and counted; but for dead letters.
        """
        self.timestamp = 0
        self.turn = 0
        self.external_bytes = 0
        self.dropped = 0
        self.sent = 0  # records since the process started; after a rollback some count again
        self.sent_to = Counter[str]()  # the same by topic: that of a stream, or outside
        self._drop = drop_external
        self._mode = mode
        self._names = NamesInMemory(None) if names is None else names
        self._stage = stage
        self._topology = topology
        self._frame_bytes_max = settings.frame_bytes_max
        self._partitions = partitions
        self._used: list[Buffer] = []  # in the order of first use since the last take
        self._external: list[ExternalRecord] = []
        buffer = Buffer if mode is None else mode.buffer
        self._streams = {
            stream.topic: [buffer(TopicPartition(stream.topic, p)) for p in range(stream.partitions)]
            for stream in topology.streams_out_of(stage.ordinal)
        }
        # Each buffer appended to since mark(), for rollback(); None where no error policy needs it.
        self._journal: list[Buffer] | None = [] if stage.undoes else None
        self._mark = (0, 0, 0)

    def take(self) -> list[tuple[TopicPartition, int, bytes]]:
        """Return and forget the outputs to streams, as (partition, records, frame body), in order of first use."""
        used = self._used.copy()
        self._used.clear()  # senders keep its append method
        taken = [frame for buffer in used if buffer.keys for frame in self._emptied(buffer)]
        for partition, count, _ in taken:
            self.sent += count
            self.sent_to[partition.topic] += count
        self.mark()
        return taken

    def take_external(self) -> list[ExternalRecord]:
        """Return and forget the outputs to external topics, in the order of the sends."""
        taken = self._external.copy()
        self.sent += len(taken)
        for partition, count in Counter(map(_PARTITION, taken)).items():  # without a step in Python for each record
            self.sent_to[partition.topic] += count
        self._external.clear()  # senders keep its append method
        self.external_bytes = 0
        self.mark()
        return taken

    @property
    def collected(self) -> int:
        """Records that were sent since they were taken last."""
        return sum(len(buffer.keys) for buffer in self._used) + len(self._external)

    def clear(self) -> None:
        """Forget everything collected (rollback of the task, R4)."""
        for buffer in self._used:
            buffer.clear()
        self._used.clear()
        self._external.clear()
        self.external_bytes = 0
        self.mark()

    def mark(self) -> None:
        """Remember this moment for ``rollback``."""
        if self._journal is not None:
            self._journal.clear()
            self._mark = len(self._external), self.external_bytes, self.dropped
            if self._mode is not None:
                self._mode.mark()

    def rollback(self) -> None:
        """Take back all that was sent since ``mark``. Only in a stage with an error policy that undoes."""
        assert self._journal is not None, "rollback: this stage keeps no marks"
        for buffer in reversed(self._journal):
            buffer.drop_last()
        self._journal.clear()
        length, self.external_bytes, self.dropped = self._mark
        del self._external[length:]
        if self._mode is not None:
            self._mode.rollback()

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two turns of a task."""
        open_frames = {id(buffer) for buffer in self._used}
        for buffer in (each for buffers in self._streams.values() for each in buffers):
            assert not buffer.keys or id(buffer) in open_frames, f"{buffer.partition}: no one would take its records"
        assert self.external_bytes >= HELD_BYTES * len(self._external), (self.external_bytes, len(self._external))
        assert self._external or not self.external_bytes, f"{self.external_bytes} bytes of records that were taken"

    def sender(self, target: Topic[Any, Any] | TopicPattern[Any, Any]) -> SendFunction:
        """Return Output.send for the topic: to every stage that reads it, or outside; if it is public, to both."""
        if isinstance(target, TopicPattern):
            share = KNOWN_MAX // target.at_most

            def sender_of(topic: Topic[Any, Any], count: int) -> SendFunction:
                append, targets = self._external_append(topic.name, count)
                ends = self._drop_one if self._drop else append, targets
                return self._encoding(topic, partition_by(topic.key), *ends, known_max=share)

            return chooser(target, self._names, self._stage.partitions, sender_of)
        topic = target
        streams = [s for s in self._topology.streams_out_of(self._stage.ordinal) if s.user_topic == topic.name]
        ends: list[tuple[Append, Sequence[Any]]] = []
        if streams:
            ends.append(self._stream_append(streams))
        if not streams or topic.public:
            append, targets = self._external_append(topic.name)
            ends.append((self._drop_one if self._drop else append, targets))
        end = ends[0] if len(ends) == 1 else both_ends(*ends)
        place = partition_by(topic.key)
        if not uses_registry(topic):
            return self._encoding(topic, place, *end)
        return encoded_first(topic, self._encoding(replace(topic, key=bytes_serde, value=bytes_serde), place, *end))

    def dead_letter(self, topic: Topic[Any, Any]) -> Callable[[bytes | None, bytes | None, int, AnyHeaders], None]:
        """Return the function that writes a record of bytes, (key, value, timestamp, headers), to an external topic."""
        append, targets = self._external_append(topic.name)
        target_of, count, next_turn = Targets(targets, partition_by(topic.key)), len(targets), self._next_turn

        def write(key: bytes | None, value: bytes | None, timestamp: int, headers: AnyHeaders) -> None:
            append(targets[next_turn(count)] if key is None else target_of[key], key, value, timestamp, headers)

        return write

    def _drop_one(self, *_: object) -> None:
        self.dropped += 1

    def _next_turn(self, count: int) -> int:
        turn = self.turn
        self.turn = turn + 1
        return turn % count

    def _emptied(self, buffer: Buffer) -> list[tuple[TopicPartition, int, bytes]]:
        frames = list(buffer.frames(self._frame_bytes_max))
        buffer.clear()
        return frames

    def _encoding(
        self,
        topic: Topic[Any, Any],
        place: PartitionBy,
        append: Append,
        targets: Sequence[Any],
        known_max: int = KNOWN_MAX,
    ) -> SendFunction:
        """Return the sender that encodes, chooses a partition and appends to its target."""
        encode_key, encode_value = functions_of(one_key_serde(topic.key))[0], functions_of(topic.value)[0]
        outputs, name, target_of, count = self, topic.name, Targets(targets, place, known_max), len(targets)
        next_turn = self._next_turn
        named = getattr(targets, "common", count)  # partitions that a sender may name

        def send(
            key: Any,
            value: Any,
            *,
            timestamp: int | None = None,
            headers: AnyHeaders = (),
            partition: int | None = None,
        ) -> None:
            try:
                raw_key = None if key is None else encode_key(key)
                raw_value = None if value is None else encode_value(value)
            except Exception as error:
                raise refused(topic, key, value, error) from error
            if partition is not None:
                if not 0 <= partition < named:
                    raise TaskError(f"output to {name}: partition {partition}: there are {named}")
                target = targets[partition]
            elif raw_key is None:
                target = targets[next_turn(count)]
            else:
                target = target_of[raw_key]
            if timestamp is None:
                timestamp = outputs.timestamp
            elif type(timestamp) is not int or abs(timestamp) > TIME_MS_MAX:
                raise TaskError(f"output to {name}: timestamp {timestamp!r}: need milliseconds since 1970 as an INT64")
            append(target, raw_key, raw_value, timestamp, headers)

        return send

    def _stream_append(self, streams: Sequence[Stream]) -> tuple[Append, Sequence[tuple[Buffer, ...]]]:
        """Return (append to a partition of each of these streams, the targets).

        Of a broadcast stream all partitions are part of each target (A2d).
        """
        used, journal = self._used, self._journal
        keyed = [self._streams[stream.topic] for stream in streams if not stream.broadcast]
        whole = tuple(buffer for stream in streams if stream.broadcast for buffer in self._streams[stream.topic])
        targets: Sequence[tuple[Buffer, ...]] = TargetsOfAll(keyed, whole)
        if len(counts := {len(buffers) for buffers in keyed}) < 2:
            count = next(iter(counts), streams[0].partitions)
            targets = [(*(buffers[p] for buffers in keyed), *whole) for p in range(count)]

        def append(
            target: tuple[Buffer, ...], key: bytes | None, value: bytes | None, timestamp: int, headers: AnyHeaders
        ) -> None:
            for buffer in target:
                if not buffer.keys:
                    used.append(buffer)
                buffer.keys.append(key)
                buffer.values.append(value)
                buffer.timestamps.append(timestamp)
                if headers:
                    buffer.add_headers(headers)
                if journal is not None:
                    journal.append(buffer)

        return append if self._mode is None else self._mode.stream_append(append), targets

    def _external_append(self, topic: str, count: int | None = None) -> tuple[Append, Sequence[Any]]:
        """Return (append to a partition of the external topic, the targets). Raises ConfigError if there is none."""
        count = count or self._partitions(topic)
        if not count:
            raise ConfigError(f"output topic {topic!r} does not exist: create it, then start the job", topic=topic)
        partitions = [TopicPartition(topic, p) for p in range(count)]
        outputs, add = self, self._external.append
        if self._mode is not None:
            return self._mode.external_append(self, add, partitions)

        def append(
            target: TopicPartition, key: bytes | None, value: bytes | None, timestamp: int, headers: AnyHeaders
        ) -> None:
            add(_new(ExternalRecord, (target, key, value, timestamp, encode_headers(headers) if headers else None)))
            outputs.external_bytes += HELD_BYTES + len(key or b"") + len(value or b"")

        return append, partitions
