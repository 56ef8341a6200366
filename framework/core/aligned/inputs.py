"""What a task knows of its internal inputs: what is admitted, early, void (A3-A6, R3, R4), and where to read again.

Channels of deterministic producers have rules of their own: logical.py (A2b).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from framework.core.actions import Process, Spill
from framework.core.aligned.deterministic_channel import LogicalChannel
from framework.core.aligned.early_buffer import EarlyBuffer, EarlyFrame
from framework.core.changelog_fold import is_void
from framework.errors import Halted
from protocol.commit import ChannelCommit, Commit, DeterministicCommit, InputCommit, ProducerLineage
from protocol.control import Heartbeat, Marker, Restore
from protocol.envelope import Header
from protocol.frames import frame_count
from protocol.ids import LineageEntry, TopicPartition


@dataclass(slots=True)
class Channel:
    """One FIFO of one producer in one partition; a function of the last commit and of what was read since."""

    producer: int
    partition: TopicPartition
    next_seq: int = 1  # admitted next
    included: int = 0  # last seq in the state, open layer included
    generation: int = 0  # announced last
    marker: int = 0  # all records up to this version have been read
    ended: bool = False  # the last marker said that its producer's inputs have ended (A2b)
    skip_version: int | None = None  # label of the first skipped record (A5)
    skip_offset: int = 0
    future: list[tuple[int, int]] = field(
        default_factory=list
    )  # (version, offset) of markers that a restart must read again

    def proves(self, version: int, offset: int, frozen: int) -> None:
        """Note that all records up to ``version`` stand before ``offset``."""
        if self.skip_version is not None:
            version = min(version, self.skip_version - 1)  # proves only what lies below the first skipped record
        elif version > frozen:
            self.future.append((version, offset))
        self.marker = max(self.marker, version)


class Inputs:
    """All channels into one task. ``aligned`` is False at least once (1.5): no labels, early buffer, roll back."""

    def __init__(
        self,
        name: str,
        channels: Sequence[tuple[int, TopicPartition]],
        early: EarlyBuffer,
        fingerprints: frozenset[int],
        *,
        aligned: bool,
        logical: frozenset[int] = frozenset(),
    ) -> None:
        self.name = name  # of the task, for errors
        self.aligned = aligned
        self.early = early
        self.fingerprints = fingerprints  # of the graphs whose producers are ours
        ordered = sorted(channels)
        self.channels = {key: Channel(*key) for key in ordered if key[0] not in logical}
        self.logical = {key: LogicalChannel(name, *key) for key in ordered if key[0] in logical}
        self.position: dict[TopicPartition, int] = {partition: 0 for _, partition in ordered}
        self.known: dict[int, tuple[LineageEntry, ...]] = {producer: () for producer, _ in self.channels}
        self.included: dict[tuple[int, int], int] = {}  # (producer, generation) -> greatest label in the open layer
        self.seen: Counter[str] = Counter()

    # --- what is read ---

    def read(self, partition: TopicPartition, offset: int) -> None:
        """Note that the message at ``offset`` was read (R5). Raises Halted if it lies before the position."""
        if offset < self.position[partition]:
            raise Halted(
                f"{self.name}: {partition} offset {offset} was delivered at position {self.position[partition]}"
            )
        self.position[partition] = offset + 1

    def frame(
        self, partition: TopicPartition, offset: int, header: Header, value: bytes, frozen: int
    ) -> Process | Spill | None:
        """Admit a frame (A3, A4): process it, keep it for its version, skip it or drop it."""
        if self.logical and (header.producer, partition) in self.logical:
            return self._logical_frame(partition, offset, header, value)
        channel = self._channel(header, partition, offset)
        count = frame_count(value)
        if self.is_void(header):
            self.seen["void records dropped"] += count
            return None
        if channel.skip_version is not None:
            return None
        self._check_announced(channel, partition, offset, header)
        known = max(0, channel.next_seq - header.seq)
        if known >= count:
            self.seen["known records dropped"] += count
            return None
        if header.seq > channel.next_seq:
            raise Halted(self._at(partition, offset, header, f"expected seq {channel.next_seq}: a record was lost"))
        if self.aligned and header.version <= frozen:
            raise Halted(
                self._at(partition, offset, header, f"new record of version {header.version}, but {frozen} is closed")
            )
        return self._arrived(channel, EarlyFrame(0, partition, offset, header, count, known, len(value), value), frozen)

    def watermark(
        self, partition: TopicPartition, offset: int, header: Header, value: bytes, frozen: int
    ) -> Process | Spill | None:
        """Admit a watermark: it goes the way of a frame without records (E3). Raises Halted."""
        channel = self._channel(header, partition, offset)
        if self.is_void(header):
            self.seen["void watermarks dropped"] += 1
            return None
        if channel.skip_version is not None:
            return None
        self._check_announced(channel, partition, offset, header)
        if header.seq > channel.next_seq:
            text = f"expected seq {channel.next_seq}: a record before the watermark was lost"
            raise Halted(self._at(partition, offset, header, text))
        if header.seq < channel.next_seq or (self.aligned and header.version <= frozen):
            self.seen["known watermarks dropped"] += 1  # it is read again
            return None
        self.seen["watermarks"] += 1
        return self._arrived(channel, EarlyFrame(0, partition, offset, header, 0, 0, len(value), value), frozen)

    def _arrived(self, channel: Channel, frame: EarlyFrame, frozen: int) -> Process | Spill | None:
        """Process what is new in a channel, keep it for its version (A4), or skip it (A5)."""
        header, count = frame.header, frame.count
        if self.aligned and header.version > frozen + 1:
            if not self.early.fits(frame.size):
                self.seen["early frames skipped"] += 1
                channel.skip_version, channel.skip_offset = header.version, frame.offset
                return None
            self.seen["early records"] += count - frame.skip
            self.seen["early watermarks"] += count == 0
            channel.next_seq = header.seq + count
            spill = self.early.add(frame)
            self.seen["early records on disk"] += 0 if spill is None else count
            return spill
        channel.next_seq = header.seq + count
        return self.include(frame)

    def _logical_frame(self, partition: TopicPartition, offset: int, header: Header, value: bytes) -> Process | None:
        """Admit a frame of a deterministic producer (A2b): it belongs to the open version, whatever that is."""
        count, known = frame_count(value), self.logical[header.producer, partition].frame(offset, header, value)
        self.seen["known records dropped"] += count if known is None else known
        if known is None:
            return None
        self.included.setdefault((header.producer, header.generation), 0)  # no label
        self.seen["records"] += count - known
        self.seen["records of deterministic producers"] += count - known
        return EarlyFrame(0, partition, offset, header, count, known, len(value), value).process()

    def heartbeat(self, partition: TopicPartition, offset: int, heartbeat: Heartbeat) -> None:
        """Take a heartbeat of a deterministic producer. Raises Halted if it is of another."""
        header = heartbeat.header
        channel = self.logical.get((header.producer, partition))
        if channel is None:
            raise Halted(self._at(partition, offset, header, "a HEARTBEAT message has no place in this mode"))
        channel.heartbeat(offset, header, heartbeat.t)

    def include(self, frame: EarlyFrame) -> Process:
        """Account a frame or watermark to the open layer, and return the action that processes it."""
        header = frame.header
        if frame.count:
            self.channels[header.producer, frame.partition].included = header.seq + frame.count - 1
        key = (header.producer, header.generation)
        self.included[key] = max(self.included.get(key, 0), header.version)
        self.seen["records"] += frame.count - frame.skip
        return frame.process()

    def marker(self, partition: TopicPartition, offset: int, marker: Marker, frozen: int) -> None:
        """Take a marker (A6): cumulative, idempotent."""
        channel = self._channel(marker.header, partition, offset)
        if self.is_void(marker.header):
            self.seen["void markers dropped"] += 1
            return
        self._check_announced(channel, partition, offset, marker.header)
        if channel.skip_version is None and marker.header.seq > channel.next_seq:
            raise Halted(
                self._at(
                    partition,
                    offset,
                    marker.header,
                    f"expected seq {channel.next_seq}: a record before the marker was lost",
                )
            )
        if marker.header.version <= channel.marker:
            self.seen["duplicate markers"] += 1
        channel.ended = marker.at_end
        channel.proves(marker.header.version, offset, frozen)

    def restore(self, partition: TopicPartition, offset: int, restore: Restore, frozen: int) -> bool:
        """Take a restore (R4); return whether it voids records of the open layer: then the task rolls back."""
        header = restore.header
        producer, generation, restored = header.producer, header.generation, header.version
        channel = self._channel(header, partition, offset)
        if restore.lineage[-1:] != (LineageEntry(generation, restored),):
            raise Halted(
                self._at(partition, offset, header, f"its lineage {restore.lineage[-3:]} does not end with itself")
            )
        if generation <= channel.generation:
            self.seen["stale restores"] += 1
            if generation == channel.generation and self.aligned:
                channel.proves(restored, offset, frozen)  # read again after a commit below it (decision 0013)
            return False
        lineage = self.known[producer]
        fresh = not lineage or generation > lineage[-1].generation
        if fresh:
            self._check_graph(restore, partition, offset)  # one that is not fresh is superseded by one that was ours
        channel.generation = generation
        if fresh:
            if self.aligned and restored < frozen:
                raise Halted(
                    self._at(
                        partition,
                        offset,
                        header,
                        f"went back to version {restored}, but {frozen} is committed here: its changelog was cut",
                    )
                )
            self.known[producer] = restore.lineage
            self.seen["restores"] += 1
            self.seen["restores ahead of the task"] += restored > frozen
            self.seen["void records dropped"] += self.early.drop(self.is_void)
        if channel.skip_version is not None and channel.skip_version > restored:
            channel.skip_version = None  # all that it skipped is void
        if channel.skip_version is None and header.seq > channel.next_seq:
            raise Halted(
                self._at(
                    partition, offset, header, f"expected seq {channel.next_seq}: a record before the restore was lost"
                )
            )
        if not self.aligned:
            channel.next_seq, channel.included = header.seq, header.seq - 1
            return False
        if channel.skip_version is None:
            channel.next_seq = header.seq
        channel.proves(restored, offset, frozen)
        return fresh and any(
            u == producer and is_void(self.known[u], g, label) for (u, g), label in self.included.items()
        )

    # --- what is committed ---

    def least_marker(self) -> int:
        """Return the version up to which every producer has sent all of its records (A6)."""
        return min(channel.marker for channel in self.channels.values())

    @property
    def greatest_label(self) -> int:
        """Return the greatest label in the open layer, 0 if it is empty."""
        return max(self.included.values(), default=0)

    def commit(self, version: int) -> tuple[InputCommit, ...]:
        """Close ``version``: return where a restart must read again, and begin the next open layer."""
        first: dict[tuple[int, TopicPartition], int] = {}
        for frame in self.early:
            key = (frame.header.producer, frame.partition)
            first[key] = min(first.get(key, frame.offset), frame.offset)
        inputs: dict[TopicPartition, list[ChannelCommit]] = {partition: [] for partition in self.position}
        for key, channel in self.channels.items():
            channel.future = [(v, offset) for v, offset in channel.future if v > version]
            offsets = [self.position[channel.partition], first.get(key, self.position[channel.partition])]
            offsets += [offset for _, offset in channel.future]
            if channel.skip_version is not None:
                offsets.append(channel.skip_offset)
            inputs[channel.partition].append(
                ChannelCommit(channel.producer, channel.generation, version, channel.included, min(offsets))
            )
        self.included = {}
        for key, logical in self.logical.items():
            inputs[key[1]].append(logical.commit(version, self.position[key[1]]))
        return tuple(
            InputCommit(partition.topic, partition.partition, min(c.recovery_offset for c in channels), tuple(channels))
            for partition, channels in inputs.items()
        )

    def fronts(self) -> DeterministicCommit | None:
        """Return for the commit how far each channel of a deterministic producer is, None if there is none."""
        fronts = tuple(channel.front for channel in self.logical.values())
        return DeterministicCommit(0, 0, 0, fronts) if fronts else None

    def lineages(self) -> tuple[ProducerLineage, ...]:
        """Return the lineage tables for the commit."""
        return tuple(ProducerLineage(producer, lineage) for producer, lineage in self.known.items())

    @property
    def skipping(self) -> bool:
        """Whether a record was skipped since the last commit (A5)."""
        return any(channel.skip_version is not None for channel in self.channels.values())

    def reset(self, commit: Commit) -> None:
        """Go back to a commit: all is a function of it and of what is read again; what is known of lineages stays."""
        self.rewind(commit.inputs)
        fronts = () if commit.deterministic is None else commit.deterministic.fronts
        seqs = {(c.producer, TopicPartition(i.topic, i.partition)): c.seq for i in commit.inputs for c in i.channels}
        for key, channel in self.logical.items():
            channel.reset(seqs[key], fronts)
        for entry in commit.known:
            lineage = self.known.get(entry.producer, ())
            if entry.lineage and (not lineage or lineage[-1].generation < entry.lineage[-1].generation):
                self.known[entry.producer] = entry.lineage

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
                if (c.producer, partition) in self.channels:
                    self.channels[c.producer, partition] = Channel(
                        c.producer, partition, c.seq + 1, c.seq, c.generation, max(c.version, 0)
                    )

    def is_void(self, header: Header) -> bool:
        """Tell whether a later incarnation of the producer has taken this message back (R3)."""
        return is_void(self.known[header.producer], header.generation, header.version)

    def _channel(self, header: Header, partition: TopicPartition, offset: int) -> Channel:
        channel = self.channels.get((header.producer, partition))
        if channel is None:
            whose = "is deterministic and sends only frames and heartbeats"
            text = whose if (header.producer, partition) in self.logical else "does not belong to the stream"
            raise Halted(self._at(partition, offset, header, f"this producer {text}"))
        return channel

    def _check_graph(self, restore: Restore, partition: TopicPartition, offset: int) -> None:
        """Raise Halted if the producer ran with a graph that is none of ours (1.2)."""
        if restore.fingerprint not in self.fingerprints:
            ours = ", ".join(f"{each:#x}" for each in sorted(self.fingerprints))
            raise Halted(
                self._at(
                    partition,
                    offset,
                    restore.header,
                    f"it ran with another graph of the job: its fingerprint is {restore.fingerprint:#x}, this code's "
                    f"{ours}. Start all workers with one code: the one that has every stage that was ever added",
                )
            )

    def _check_announced(self, channel: Channel, partition: TopicPartition, offset: int, header: Header) -> None:
        """Raise Halted if the restore that announces this generation is missing: lost by the log (R2, 0011)."""
        if header.generation > channel.generation:
            raise Halted(
                self._at(partition, offset, header, f"generation was never announced (last: {channel.generation})")
            )

    def _at(self, partition: TopicPartition, offset: int, header: Header, text: str) -> str:
        return (
            f"{self.name}: {partition} offset {offset}: producer {header.producer} generation {header.generation} "
            f"version {header.version} seq {header.seq}: {text}"
        )
