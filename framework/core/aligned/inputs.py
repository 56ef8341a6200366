"""The internal inputs of a task: what is admitted, early or rolled back (A3-A6, R3, R4), and where to read again.

Channels of deterministic producers have rules of their own: deterministic_channel.py (A2b).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from grete.core.actions import DropSpilled, Process, Spill
from grete.core.aligned.channel import Channel
from grete.core.aligned.channel_totals import ChannelTotals
from grete.core.aligned.deterministic_channel import LogicalChannel
from grete.core.aligned.early_buffer import EarlyBuffer, EarlyFrame
from grete.core.aligned.rollbacks import Rollbacks
from grete.core.events import Message
from grete.core.graph.task_topology import TaskWiring
from grete.core.halts import halted, undecodable, went_back
from grete.core.limits import Limits
from grete.errors import Halted
from grete.protocol.commit import ChannelCommit, Commit, DeterministicCommit, InputCommit
from grete.protocol.control import (
    PROGRESS,
    Marker,
    ProgressMessage,
    RollbackMarker,
    decode_marker,
    decode_rollback_marker,
    progress_of,
)
from grete.protocol.envelope import Header, MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.frames import frame_count
from grete.protocol.ids import TopicPartition


class Inputs:
    """All channels into one task.

    ``aligned`` is False at least once (1.5): then there are no checkpoint ids, no early buffer and no rollback.
    """

    def __init__(self, task: TaskWiring, limits: Limits, *, aligned: bool) -> None:
        self.name = task.name  # for errors
        self.aligned = aligned
        self.checkpoint_ahead_ms = limits.checkpoint_ahead_ms
        self.early = EarlyBuffer(limits.early_memory_bytes_max, limits.early_bytes_max)
        ordered = sorted(task.channels)
        self.channels = {key: Channel(task.name, *key) for key in ordered if key[0] not in task.logical}
        self.logical = {key: LogicalChannel(task.name, *key) for key in ordered if key[0] in task.logical}
        self.totals = ChannelTotals(self.channels)
        self.position: dict[TopicPartition, int] = {partition: 0 for _, partition in ordered}
        self.rollbacks = Rollbacks((producer for producer, _ in self.channels), task.fingerprints)
        self.included: dict[tuple[int, int], int] = {}  # (producer, generation) → greatest id in the open write batch
        self.taken_back = False  # a producer has taken back some of it: the task itself must roll back (R4)
        self.seen: Counter[str] = Counter()

    # --- what is read ---

    def message(self, event: Message, frozen: int) -> Process | Spill | DropSpilled | None:
        """Take the next message of an input partition. Return what must be done with it, if anything. Raises Halted."""
        partition, offset, value = event.partition, event.offset, event.value
        self.read(partition, offset)
        try:
            header = decode_header(value)
            if header.type is MessageType.FRAME:
                if header.checkpoint_id > event.append_time_ms + self.checkpoint_ahead_ms:
                    self.seen["checkpoint ids ahead of the log's clock"] += 1
                return self.frame(partition, offset, header, value, frozen)
            if header.type is MessageType.MARKER:
                if self.aligned:
                    self.marker(partition, offset, decode_marker(value, header), frozen)
                return None
            if header.type is MessageType.WATERMARK:
                return self.watermark(partition, offset, header, value, frozen)
            if header.type in PROGRESS:
                for each in progress_of(header.type, value):
                    self.progress(partition, offset, each)
                return None
            self.taken_back = self.rollback_marker(partition, offset, decode_rollback_marker(value), frozen)
            return DropSpilled(dropped) if (dropped := self.early.take_dropped()) else None
        except DecodeError as error:
            raise undecodable(self.name, partition, offset, error) from error

    def read(self, partition: TopicPartition, offset: int) -> None:
        """Note that the message at ``offset`` was read (R5). Raises Halted if it lies before the position."""
        if offset < self.position[partition]:
            raise went_back(self.name, partition, offset, self.position[partition])
        self.position[partition] = offset + 1

    def frame(
        self, partition: TopicPartition, offset: int, header: Header, value: bytes, frozen: int
    ) -> Process | Spill | None:
        """Admit a frame (A3, A4): process it, keep it for its checkpoint, skip it or drop it."""
        if self.logical and (header.producer, partition) in self.logical:
            return self._logical_message(partition, offset, header, value)
        channel = self._channel(header, partition, offset)
        count = frame_count(value)
        if self.rollbacks.is_rolled_back(header):
            self.seen["rolled-back records dropped"] += count
            return None
        if channel.skipped is not None:
            return None
        channel.check_announced(offset, header)
        known = max(0, channel.next_seq - header.seq)
        if known >= count:
            self.seen["known records dropped"] += count
            return None
        if header.seq > channel.next_seq:
            raise self._halted(partition, offset, header, f"expected seq {channel.next_seq}: a record was lost")
        if self.aligned and header.checkpoint_id <= frozen:
            text = f"new record of checkpoint {header.checkpoint_id}, but {frozen} is closed"
            raise self._halted(partition, offset, header, text)
        return self._arrived(channel, EarlyFrame(0, partition, offset, header, count, known, len(value), value), frozen)

    def watermark(
        self, partition: TopicPartition, offset: int, header: Header, value: bytes, frozen: int
    ) -> Process | Spill | None:
        """Admit a watermark: it goes the way of a frame without records (E3). Raises Halted."""
        if (header.producer, partition) in self.logical:
            return self._logical_message(partition, offset, header, value)
        channel = self._channel(header, partition, offset)
        if self.rollbacks.is_rolled_back(header):
            self.seen["rolled-back watermarks dropped"] += 1
            return None
        if channel.skipped is not None:
            return None
        channel.check_announced(offset, header)
        channel.check_complete(offset, header, "watermark")
        if header.seq < channel.next_seq or (self.aligned and header.checkpoint_id <= max(frozen, channel.marker)):
            self.seen["known watermarks dropped"] += 1  # it is read again, or repeated behind its checkpoint's marker
            return None
        self.seen["watermarks"] += 1
        return self._arrived(channel, EarlyFrame(0, partition, offset, header, 0, 0, len(value), value), frozen)

    def _arrived(self, channel: Channel, frame: EarlyFrame, frozen: int) -> Process | Spill | None:
        """Process what is new in a channel, keep it for its checkpoint (A4), or skip it (A5)."""
        header, count = frame.header, frame.count
        if self.aligned and header.checkpoint_id > frozen + 1:
            if not self.early.fits(frame.size):
                self.seen["early frames skipped"] += 1
                self.totals.skips(channel, header.checkpoint_id, frame.offset)
                return None
            self.seen["early records"] += count - frame.skip
            self.seen["early watermarks"] += count == 0
            channel.next_seq = header.seq + count
            spill = self.early.add(frame)
            self.seen["early records on disk"] += 0 if spill is None else count
            return spill
        channel.next_seq = header.seq + count
        return self.include(frame)

    def _logical_message(self, partition: TopicPartition, offset: int, header: Header, value: bytes) -> Process | None:
        """Admit what a deterministic producer sends (A2b): it belongs to the open checkpoint, whatever that is."""
        frame = self.logical[header.producer, partition].admit(offset, header, value, self.seen)
        if frame is None:
            return None
        self.included.setdefault((header.producer, header.generation), 0)  # no checkpoint id
        return frame.process()

    def progress(self, partition: TopicPartition, offset: int, progress: ProgressMessage) -> None:
        """Take a progress message of a deterministic producer. Raises Halted if it is of another."""
        header = progress.header
        channel = self.logical.get((header.producer, partition))
        if channel is None:
            raise self._halted(partition, offset, header, "a progress message does not belong in this mode")
        channel.progress(offset, header, progress.t)

    def include(self, frame: EarlyFrame) -> Process:
        """Account a frame or watermark to the open write batch, and return the action that processes it."""
        header = frame.header
        if frame.count:
            self.channels[header.producer, frame.partition].included = header.seq + frame.count - 1
        key = (header.producer, header.generation)
        self.included[key] = max(self.included.get(key, 0), header.checkpoint_id)
        self.seen["records"] += frame.count - frame.skip
        return frame.process()

    def marker(self, partition: TopicPartition, offset: int, marker: Marker, frozen: int) -> None:
        """Take a checkpoint marker (A6): cumulative, idempotent."""
        header = marker.header
        channel = self._channel(header, partition, offset)
        if self.rollbacks.is_rolled_back(header):
            self.seen["invalid markers dropped"] += 1
            return
        if header.generation != channel.generation or header.seq != channel.next_seq:  # nearly always both are
            channel.check_announced(offset, header)
            channel.check_complete(offset, header, "marker")
        if header.seq <= channel.included:
            channel.check_grown(offset, header, frozen)
        self.seen["duplicate markers"] += header.checkpoint_id <= channel.marker
        self.totals.ends(channel, marker, offset)
        self.totals.proves(channel, header.checkpoint_id, offset, frozen)

    def rollback_marker(self, partition: TopicPartition, offset: int, marker: RollbackMarker, frozen: int) -> bool:
        """Take a rollback marker (R4).

        Return whether it rolls back records of the open write batch: then the task itself must roll back.
        """
        header = marker.header
        producer, generation, restored = header.producer, header.generation, header.checkpoint_id
        channel = self._channel(header, partition, offset)
        if (wrong := self.rollbacks.contradiction(marker)) is not None:
            raise self._halted(partition, offset, header, wrong)
        if generation <= channel.generation:
            self.seen["stale rollback markers"] += 1
            if generation == channel.generation and self.aligned:
                channel.said = generation, restored, offset
                self.totals.proves(channel, restored, offset, frozen)  # read again after a commit below it (0013)
            return False
        fresh = self.rollbacks.is_new(header)
        if fresh and (other := self.rollbacks.other_graph(marker)) is not None:
            raise self._halted(partition, offset, header, other)  # one that is not fresh is superseded by ours
        channel.announced(generation, restored, offset)
        if fresh:
            self._learn_rollback(partition, offset, marker, frozen)
        if channel.skipped is not None and channel.skipped.checkpoint_id > restored:
            self.totals.skips_no_more(channel)
        channel.check_complete(offset, header, "rollback marker")
        if not self.aligned:
            channel.next_seq, channel.included = header.seq, header.seq - 1
            return False
        if channel.skipped is None:
            channel.next_seq = header.seq
        self.totals.proves(channel, restored, offset, frozen)
        return fresh and self.rollbacks.takes_back(producer, self.included)

    def _learn_rollback(self, partition: TopicPartition, offset: int, marker: RollbackMarker, frozen: int) -> None:
        """Know a producer's new rollback history, and drop what it rolls back of the early records (R3)."""
        header, restored = marker.header, marker.header.checkpoint_id
        if self.aligned and restored < frozen:
            text = f"went back to checkpoint {restored}, but {frozen} is committed here: its changelog was cut"
            raise self._halted(partition, offset, header, text)
        self.rollbacks.known[header.producer] = marker.rollback_history
        self.seen["rollback markers"] += 1
        self.seen["rollback markers ahead of the task"] += restored > frozen
        self.seen["rolled-back records dropped"] += self.early.drop(self.rollbacks.is_rolled_back)

    # --- what is committed ---

    def least_marker(self) -> int:
        """Return the checkpoint up to which every producer has sent all of its records (A6)."""
        return self.totals.least_marker

    @property
    def all_ended(self) -> bool:
        """Whether the inputs of all producers have ended. Of deterministic ones frontiers tell, not a flag (A2b)."""
        return not self.logical and self.totals.all_ended

    @property
    def greatest_checkpoint(self) -> int:
        """Return the greatest checkpoint id in the open write batch, 0 if it is empty."""
        return max(self.included.values(), default=0)

    def commit(self, checkpoint_id: int) -> tuple[InputCommit, ...]:
        """Close ``checkpoint_id``: return where a restart must read again, and begin the next open write batch."""
        first = self.early.first_offsets()
        assert bool(first) == bool(self.early.bytes), (self.name, first, self.early.bytes)
        inputs: dict[TopicPartition, tuple[int, list[ChannelCommit]]] = {
            partition: (position, []) for partition, position in self.position.items()
        }
        for key, channel in self.channels.items():
            position, channels = inputs[key[1]]
            channels.append(channel.commit(checkpoint_id, first.get(key, position) if first else position))
        self.included = {}
        for key, logical in self.logical.items():
            position, channels = inputs[key[1]]
            channels.append(logical.commit(checkpoint_id, position))
        return tuple(
            InputCommit(partition.topic, partition.partition, min(c.recovery_offset for c in channels), tuple(channels))
            for partition, (_, channels) in inputs.items()
        )

    def frontiers(self) -> DeterministicCommit | None:
        """Return for the commit how far each channel of a deterministic producer is, None if there is none."""
        frontiers = tuple(channel.frontier for channel in self.logical.values())
        return DeterministicCommit(0, 0, 0, frontiers) if frontiers else None

    def processed_offset(self, partition: TopicPartition) -> int:
        """Return the offset of the first message that is still to be processed; early ones are."""
        skipped = [
            c.skipped.offset for c in self.channels.values() if c.partition == partition and c.skipped is not None
        ]
        return self.early.first_offset(partition, min([self.position[partition], *skipped]))

    def reached_by_channel(self) -> Iterator[tuple[int, int]]:
        """Yield (producer, time in µs of its last checkpoint marker) of each channel of the alignment."""
        yield from ((channel.producer, 1_000 * channel.marker) for channel in self.channels.values())

    @property
    def waiting_bytes(self) -> tuple[int, int]:
        """Bytes of early frames, in memory and on disk."""
        return self.early.memory_bytes, self.early.bytes - self.early.memory_bytes

    @property
    def holds_input(self) -> bool:
        """Whether records are in the open write batch or early: no frozen checkpoint has them."""
        return bool(self.included or self.early.bytes)

    def rollback_causes(self) -> list[int]:
        """Return the producers of records in the open write batch that can take them back (R4)."""
        logical = {producer for producer, _ in self.logical}
        return [producer for producer, _ in self.included if producer not in logical]

    def reset(self, commit: Commit) -> None:
        """Go back to a commit: only the known rollback histories are more than it says, and what is read again."""
        self.rewind(commit.inputs)
        self.taken_back = False
        frontiers = () if commit.deterministic is None else commit.deterministic.frontiers
        seqs = {(c.producer, TopicPartition(i.topic, i.partition)): c.seq for i in commit.inputs for c in i.channels}
        for key, channel in self.logical.items():
            channel.reset(seqs[key], frontiers)
        self.rollbacks.resume(commit.known)

    def rewind(self, inputs: Sequence[InputCommit]) -> None:
        """Set positions, seqs, generations and markers as the inputs of a commit say; buffers empty.

        Channels of deterministic producers stay: nothing is ever early in them.
        """
        self.early.clear()
        self.included = {}
        for entry in inputs:
            partition = TopicPartition(entry.topic, entry.partition)
            self.position[partition] = entry.resume
            for c in entry.channels:
                if (channel := self.channels.get((c.producer, partition))) is not None:
                    channel.rewind(c)
        self.totals.forget()

    def check_invariants(self, frozen: int) -> None:
        """Raise AssertionError unless this holds between any two steps of a task that has frozen ``frozen``."""
        self.early.check_invariants(frozen)
        self.totals.check_invariants()
        for logical in self.logical.values():
            logical.check_invariants()
        for channel in self.channels.values():
            channel.check_invariants(frozen)
            assert channel.included < channel.next_seq or self.taken_back, channel
        for producer in self.rollbacks.known if self.aligned and not self.taken_back else ():
            assert not self.rollbacks.takes_back(producer, self.included), producer

    def _channel(self, header: Header, partition: TopicPartition, offset: int) -> Channel:
        channel = self.channels.get((header.producer, partition))
        if channel is None:
            logical = (header.producer, partition) in self.logical
            text = "is deterministic and sends no such message" if logical else "does not belong to the stream"
            raise self._halted(partition, offset, header, f"this producer {text}")
        return channel

    def _halted(self, partition: TopicPartition, offset: int, header: Header, text: str) -> Halted:
        return halted(self.name, partition, offset, header, text)
