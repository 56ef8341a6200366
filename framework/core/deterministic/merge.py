"""The inputs of a deterministic task: what was received of each channel, merged in the order of logical time (D1, D3).

The key of a record is (t, source id, channel, seq); channels are numbered as they are sorted. A record may go when its
key is at or below the bound of every channel: of what is at or below that, nothing is still to come in the channel.
Watermarks of logical time t have their place behind all records up to t (E2).
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from grete.core.actions import MergedWatermarks, Seek
from grete.core.deterministic.decoded_frame import NOT_LOGICAL, DecodedFrame, difference, receive
from grete.core.deterministic.handed_out import ChannelWatermark, FrameSlice, HandedOut, batches_of
from grete.core.deterministic.merge_channel import ALL, Bound, MergeChannel, upto
from grete.core.events import Message
from grete.core.halts import undecodable, went_back
from grete.errors import Halted
from grete.halts import HaltCode
from grete.protocol.commit import ChannelCommit, Commit, Frontier, InputCommit
from grete.protocol.control import PROGRESS, ProgressMessage, Watermark, decode_watermark, progress_of
from grete.protocol.envelope import Header, MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.frames import frame_count
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch


class Merge:
    """All channels into one task. What is received and not processed is bounded; beyond it channels skip (D1)."""

    def __init__(self, name: str, channels: Sequence[tuple[int, TopicPartition]], bytes_max: int) -> None:
        self.name = name  # of the task, for errors
        self.bytes_max = bytes_max
        self.bytes = 0  # of the frames in the queues
        ordered = sorted(channels)
        self.channels = [MergeChannel(index, *key) for index, key in enumerate(ordered)]
        self.position: dict[TopicPartition, int] = {partition: 0 for _, partition in ordered}
        self.latest = -1  # the last time that something was received of, in µs
        self.seen: Counter[str] = Counter()
        self._by_key = {(c.producer, c.partition): c for c in self.channels}
        self._several = len(self.position) > 1
        self._handed_out = HandedOut()

    # --- what is read ---

    def message(self, event: Message) -> None:
        """Take the next message of an input partition. Raises Halted if it does not belong there."""
        partition, offset, value = event.partition, event.offset, event.value
        self.read(partition, offset)
        try:
            header = decode_header(value)
            if header.type is MessageType.FRAME:
                self.frame(partition, offset, header, value)
                return
            if header.type in PROGRESS:
                for each in progress_of(header.type, value):
                    self.progress(partition, offset, each)
                return
            if header.type is MessageType.WATERMARK:
                self.watermark(partition, offset, decode_watermark(value))
                return
        except DecodeError as error:
            raise undecodable(self.name, partition, offset, error) from error
        found = f"a {header.type.name} message"
        raise Halted(
            f"{self.name}: {partition} offset {offset}: {found} does not belong in deterministic mode",
            task=self.name,
            partition=partition,
            offset=offset,
            code=HaltCode.STREAM_DAMAGED,
        )

    def read(self, partition: TopicPartition, offset: int) -> None:
        """Note that the message at ``offset`` was read (R5). Raises Halted if it lies before the position."""
        if offset < self.position[partition]:
            raise went_back(self.name, partition, offset, self.position[partition])
        self.position[partition] = offset + 1

    def frame(self, partition: TopicPartition, offset: int, header: Header, value: bytes) -> None:
        """Take a frame: what is known is dropped, what is new waits for its turn (D3)."""
        channel = self._channel(header, partition, offset)
        if channel.skip_offset is not None:
            return
        count, known = frame_count(value), max(0, channel.received + 1 - header.seq)
        if known >= count and (channel.last is None or header.generation == channel.generation):
            self.seen["known records dropped"] += count
            return
        if header.seq > channel.received + 1:
            raise self._halted(partition, offset, header, f"expected seq {channel.received + 1}: a record was lost")
        if known < count and channel.queue and self.bytes + len(value) > self.bytes_max:
            self.seen["frames skipped"] += 1
            channel.skip_offset = offset
            return
        frame = receive(header, offset, value, known)
        if frame is None:
            raise self._halted(partition, offset, header, NOT_LOGICAL)
        if header.generation != channel.generation:
            self._compare(channel, header, frame, known)
        self.seen["known records dropped"] += min(known, count)
        if known >= count:
            return
        if (*frame.pairs[known], channel.index) < channel.bound or sorted(frame.pairs) != frame.pairs:
            text = f"logical time {frame.pairs[known]} after {channel.bound}: its producer went back in time"
            raise self._halted(partition, offset, header, text)
        channel.generation, channel.last = header.generation, frame
        channel.received, channel.bound = header.seq + count - 1, (*frame.pairs[-1], channel.index)
        channel.queue.append(frame)
        self.latest = max(self.latest, frame.pairs[-1][0])
        self.bytes += frame.size

    def _compare(self, channel: MergeChannel, header: Header, frame: DecodedFrame, known: int) -> None:
        """Raise Halted if another incarnation of the producer has made other records of the same seqs (D3)."""
        self.seen["digests compared"] += known < len(frame.pairs)
        text = difference(channel.last, channel.received, channel.digest, frame, known)
        if text is not None:
            raise self._halted(channel.partition, frame.offset, header, text, HaltCode.NOT_DETERMINISTIC)

    def progress(self, partition: TopicPartition, offset: int, progress: ProgressMessage) -> None:
        """Take a progress message: nothing at or below it is still to come (D1)."""
        header = progress.header
        channel = self._channel(header, partition, offset)
        if channel.skip_offset is not None:
            return
        if header.seq > channel.received + 1:
            text = f"expected seq {channel.received + 1}: a record before the progress message was lost"
            raise self._halted(partition, offset, header, text)
        channel.bound = max(channel.bound, (progress.t, progress.source, ALL))
        self.latest = max(self.latest, progress.t)

    def watermark(self, partition: TopicPartition, offset: int, message: Watermark) -> None:
        """Take watermarks. Known is what the channel has passed: so whether one counts is a function of the channel."""
        channel = self._channel(message.header, partition, offset)
        if channel.skip_offset is not None:
            return
        if message.times is None:
            raise self._halted(partition, offset, message.header, NOT_LOGICAL)
        if message.header.seq > channel.received + 1:
            text = f"expected seq {channel.received + 1}: a record before the watermark was lost"
            raise self._halted(partition, offset, message.header, text)
        if channel.waits and self.bytes + channel.watermarks.bytes_of(message) > self.bytes_max:
            self.seen["watermarks skipped"] += 1
            channel.skip_offset = offset
            return
        taken = channel.watermarks.add(message, offset, upto(channel.bound))
        self.bytes += taken
        self.seen["watermarks" if taken else "known watermarks dropped"] += 1

    # --- what is processed ---

    @property
    def upto(self) -> int:
        """The time up to which nothing is still to come, in µs."""
        return upto(min(channel.bound for channel in self.channels))

    def take(self) -> tuple[list[RecordBatch | MergedWatermarks], int]:
        """Remove and return what comes next in its order, and the time up to which all is processed with it.

        At most about one frame of each channel at a time: there may be more to take.
        """
        limit = min(channel.bound for channel in self.channels)
        for channel in self.channels:
            if len(channel.queue) > 1:
                limit = min(limit, (*channel.queue[0].pairs[-1], channel.index))
        taken: list[RecordBatch | MergedWatermarks] = []
        self._handed_out.clear()
        while (t := min(channel.watermarks.first_t for channel in self.channels)) <= upto(limit):
            taken += self._take_records((t, ALL, ALL))
            taken.append(self._take_watermarks(t))
            self._handed_out.mark(len(taken))
        return [*taken, *self._take_records(limit)], upto(limit)

    def give_back(self, batches: int) -> None:
        """Take back what ``take`` has handed out behind its first ``batches``, which end with watermarks."""
        size = self._handed_out.give_back(batches)
        self.bytes += size
        self.seen["given back"] += size > 0

    def _take_watermarks(self, t: int) -> MergedWatermarks:
        """Remove and return the watermarks of ``t``: together, so that their order does not matter."""
        marks = []
        for channel in self.channels:
            if channel.watermarks.first_t == t:
                waiting, size = channel.watermarks.take()
                self.bytes -= size
                self._handed_out.add((ChannelWatermark(channel, waiting),))
                marks.append(((channel.producer, channel.partition), *waiting.advance[1:]))
        self.seen["watermarks merged"] += len(marks)
        return MergedWatermarks(t, tuple(marks))

    def _take_records(self, limit: Bound) -> list[RecordBatch]:
        """Remove and return the records up to a bound that no channel is behind."""
        cuts = list[FrameSlice]()
        for channel in self.channels:
            if channel.queue:
                head = channel.queue[0]
                start, stop = head.start, _end(head, limit, channel.index)
                if stop > start:
                    cuts.append(FrameSlice(channel, head, start, stop))
        for channel, head, _, stop in cuts:
            head.start, channel.processed = stop, head.seq + stop - 1
            if stop == len(head.pairs):
                channel.queue.popleft()
                self.bytes -= head.size
        self._handed_out.add(cuts)
        records = sum(stop - start for _, _, start, stop in cuts)
        self.seen["records"] += records
        self.seen["records of several inputs merged"] += records if self._several and len(cuts) > 1 else 0
        return batches_of(cuts, several=self._several)

    def seeks(self) -> list[Seek]:
        """Return the offsets to read again, of channels that skip and have nothing left to process."""
        stalled = [c for c in self.channels if c.skip_offset is not None and not c.waits]
        offsets: dict[TopicPartition, int] = {}
        for c in sorted(stalled, key=lambda c: c.skip_offset or 0):
            offsets.setdefault(c.partition, c.skip_offset or 0)
        for c in self.channels:
            if c.skip_offset is not None and c.skip_offset >= offsets.get(c.partition, 1 << 62):
                c.skip_offset = None
        self.position |= offsets
        self.seen["seeks back"] += len(offsets)
        return [Seek(partition, offset) for partition, offset in offsets.items()]

    def processed_offset(self, partition: TopicPartition) -> int:
        """Return the offset of the first message that is still to be processed."""
        position = self.position[partition]
        skipped = [c.skip_offset for c in self.channels if c.partition == partition and c.skip_offset is not None]
        read = min([position, *skipped])
        return min(c.resume(read) for c in self.channels if c.partition == partition)

    def reached_by_channel(self) -> Iterator[tuple[int, int]]:
        """Yield (producer, time in µs up to which nothing is still to come) of each channel."""
        yield from ((channel.producer, upto(channel.bound)) for channel in self.channels)

    @property
    def holds_input(self) -> bool:
        """Whether frames or watermarks wait for their turn."""
        return bool(self.bytes)

    @property
    def waiting_bytes(self) -> tuple[int, int]:
        """Bytes of frames in the queues; none is on disk."""
        return self.bytes, 0

    def rollback_causes(self) -> tuple[int, ...]:
        """Return none: a deterministic producer makes its records again, and takes none back (D3)."""
        return ()

    # --- what is committed ---

    def commit(self, checkpoint_id: int) -> tuple[tuple[InputCommit, ...], tuple[Frontier, ...]]:
        """Return the offsets that a restart must read again from, and up to which each channel is processed."""
        inputs: dict[TopicPartition, list[ChannelCommit]] = {partition: [] for partition in self.position}
        frontiers = []
        for c in self.channels:
            offset = self.position[c.partition] if c.skip_offset is None else c.skip_offset
            inputs[c.partition].append(
                ChannelCommit(c.producer, max(c.generation, 0), checkpoint_id, c.processed, c.resume(offset))
            )
            where = c.partition.topic, c.partition.partition, c.producer
            frontiers.append(Frontier(*where, c.processed_upto, ALL, c.processed_digest))
        commits = (
            InputCommit(partition.topic, partition.partition, min(c.recovery_offset for c in channels), tuple(channels))
            for partition, channels in inputs.items()
        )
        return tuple(commits), tuple(frontiers)

    def reset(self, commit: Commit) -> None:
        """Go back to a commit."""
        time = commit.deterministic
        frontiers = {(f.producer, TopicPartition(f.topic, f.partition)): f for f in (time.frontiers if time else ())}
        for entry in commit.inputs:
            partition = TopicPartition(entry.topic, entry.partition)
            self.position[partition] = entry.resume
            for c in entry.channels:
                frontier, channel = frontiers[c.producer, partition], self._by_key[c.producer, partition]
                channel.received = channel.processed = c.seq
                channel.bound, channel.digest = (frontier.t, frontier.source, ALL), frontier.digest

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps of a task."""
        size = 0
        for channel in self.channels:
            for head in channel.queue:
                size += head.size
            assert 0 <= channel.processed <= channel.received, channel
            assert (channel.processed < channel.received) == bool(channel.queue), channel
            if channel.queue:
                head, last = channel.queue[0], channel.queue[-1]
                assert channel.processed == head.seq + head.start - 1, (channel.index, channel.processed, head.seq)
                assert channel.received == last.seq + len(last.pairs) - 1, (channel.index, channel.received, last.seq)
            assert channel.skip_offset is None or channel.skip_offset < self.position[channel.partition], channel
        assert self.bytes >= size, self.bytes

    def _channel(self, header: Header, partition: TopicPartition, offset: int) -> MergeChannel:
        channel = self._by_key.get((header.producer, partition))
        if channel is None:
            raise self._halted(partition, offset, header, "this producer does not belong to the stream")
        return channel

    def _halted(
        self,
        partition: TopicPartition,
        offset: int,
        header: Header,
        text: str,
        code: HaltCode = HaltCode.STREAM_DAMAGED,
    ) -> Halted:
        return Halted(
            f"{self.name}: {partition} offset {offset}: producer {header.producer} generation {header.generation} "
            f"seq {header.seq}: {text}",
            task=self.name,
            partition=partition,
            offset=offset,
            checkpoint_id=header.checkpoint_id,
            code=code,
        )


def _end(head: DecodedFrame, limit: Bound, index: int) -> int:
    """Return the number of records of a frame within the limit."""
    cut = bisect_right if index <= limit[2] else bisect_left
    return cut(head.pairs, limit[:2], head.start)
