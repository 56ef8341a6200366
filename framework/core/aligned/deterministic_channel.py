"""The state of a channel from a deterministic producer to an aligned task (A2b).

Records in such a channel are never rolled back: a successor makes the same records again, with the same seqs (D3). So
the channel holds no checkpoint markers and no rollback markers. Records are taken by seq, like those of an
external topic by offset. A redelivered record is compared, then dropped. The commit of a checkpoint says how far the
channel is.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from grete.core.aligned.early_buffer import EarlyFrame
from grete.core.deterministic.decoded_frame import NOT_LOGICAL, DecodedFrame, difference, receive
from grete.core.deterministic.merge_channel import ALL
from grete.errors import Halted
from grete.halts import HaltCode
from grete.protocol.commit import ChannelCommit, Frontier
from grete.protocol.control import Watermark, decode_watermark
from grete.protocol.envelope import Header, MessageType
from grete.protocol.frames import frame_count
from grete.protocol.ids import TopicPartition


@dataclass(slots=True)
class LogicalChannel:
    """A function of the last commit and of the records read since.

    The records that were taken are in the state or in the open write batch.
    """

    task: str  # for errors
    producer: int
    partition: TopicPartition
    taken: int = 0  # last seq
    upto: int = -1  # µs: nothing at or below it is still to come
    told: int = -1  # µs: the time of the last watermark
    generation: int = -1  # of the frame taken last; -1: none since the start
    _digest: int = 0  # after ``taken``, if no frame was taken since the start
    _last: tuple[Header, int, bytes] | None = None  # the frame taken last, and its offset
    _decoded: DecodedFrame | None = None  # the same, once it was asked for

    @property
    def digest(self) -> int:
        """The channel's digest after the record taken last; it may take a decoding: for commits and restarts."""
        last = self._received()
        return self._digest if last is None else last.digest_at(len(last.pairs))

    def admit(self, offset: int, header: Header, value: bytes, seen: Counter[str]) -> EarlyFrame | None:
        """Take a frame or a watermark, and count it in ``seen``; None: all of it is known. Raises Halted."""
        count = 0
        if header.type is MessageType.WATERMARK:
            known = self.watermark(offset, header, decode_watermark(value))
            seen["watermarks" if known == 0 else "known watermarks dropped"] += 1
        else:
            count, known = frame_count(value), self.frame(offset, header, value)
            seen["known records dropped"] += count if known is None else known
        if known is None:
            return None
        seen["records"] += count - known
        seen["records of deterministic producers"] += count - known
        return EarlyFrame(0, self.partition, offset, header, count, known, len(value), value)

    def frame(self, offset: int, header: Header, value: bytes) -> int | None:
        """Take a frame; return how many records at its head are known, None if all are. Raises Halted."""
        count, known = frame_count(value), max(0, self.taken + 1 - header.seq)
        if header.seq > self.taken + 1:
            raise self._halted(offset, header, f"expected seq {self.taken + 1}: a record was lost")
        if header.generation != self.generation and (known < count or self._last is not None):
            text = difference(
                self._received(), self.taken, self._digest, self._decode(header, offset, value, known), known
            )
            if text is not None:
                raise self._halted(offset, header, text, HaltCode.NOT_DETERMINISTIC)
        if known >= count:
            return None
        self.generation, self.taken = header.generation, header.seq + count - 1
        self._last, self._decoded = (header, offset, value), None
        return known

    def watermark(self, offset: int, header: Header, message: Watermark) -> int | None:
        """Take a watermark; return None if it is known, else 0. Raises Halted if a record before it was lost.

        What comes again, or behind a time that has passed, is known: also that a producer was idle then.
        """
        if message.times is None:
            raise self._halted(offset, header, NOT_LOGICAL)
        if header.seq > self.taken + 1:
            raise self._halted(offset, header, f"expected seq {self.taken + 1}: a record before the watermark was lost")
        if message.times[-1] <= max(self.told, self.upto):
            return None
        self.told = message.times[-1]
        return 0

    def progress(self, offset: int, header: Header, t: int) -> None:
        """Note that nothing up to ``t`` µs is still to come. Raises Halted if something before it was lost."""
        if header.seq > self.taken + 1:
            raise self._halted(
                offset, header, f"expected seq {self.taken + 1}: a record before the progress message was lost"
            )
        self.upto = max(self.upto, t)

    def commit(self, checkpoint_id: int, resume: int) -> ChannelCommit:
        """Return the channel's entry in a commit, without its frontier."""
        return ChannelCommit(self.producer, max(self.generation, 0), checkpoint_id, self.taken, resume)

    @property
    def frontier(self) -> Frontier:
        """Return the position up to which the channel was read."""
        return Frontier(self.partition.topic, self.partition.partition, self.producer, self.upto, ALL, self.digest)

    def reset(self, seq: int, frontiers: Sequence[Frontier]) -> None:
        """Go back to what a commit says."""
        where = self.partition.topic, self.partition.partition, self.producer
        [frontier] = [each for each in frontiers if (each.topic, each.partition, each.producer) == where]
        self.taken, self.upto, self._digest = seq, frontier.t, frontier.digest
        self.told = frontier.t
        self.generation, self._last, self._decoded = -1, None, None

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps of a task."""
        assert (self._last is None) == (self.generation < 0), self
        assert self._last is None or self._last[0].seq <= self.taken, self
        assert self._decoded is None or self._last is not None, self

    def _received(self) -> DecodedFrame | None:
        if self._decoded is None and self._last is not None:
            header, offset, value = self._last
            self._decoded = self._decode(header, offset, value, 0)
        return self._decoded

    def _decode(self, header: Header, offset: int, value: bytes, known: int) -> DecodedFrame:
        frame = receive(header, offset, value, known)
        if frame is None:
            raise self._halted(offset, header, NOT_LOGICAL)
        return frame

    def _halted(self, offset: int, header: Header, text: str, code: HaltCode = HaltCode.STREAM_DAMAGED) -> Halted:
        return Halted(
            f"{self.task}: {self.partition} offset {offset}: producer {header.producer} generation {header.generation} "
            f"seq {header.seq}: {text}",
            partition=self.partition,
            offset=offset,
            code=code,
        )
