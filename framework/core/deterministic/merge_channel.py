"""One channel of a deterministic task: what was received of it, and up to which logical time it is known (D1, D3)."""

from collections import deque
from dataclasses import dataclass, field

from grete.core.deterministic.decoded_frame import DecodedFrame
from grete.core.deterministic.logical_watermarks import ReceivedWatermarks
from grete.protocol.ids import TopicPartition

ALL = (1 << 31) - 1  # instead of a source id or a channel: all of them
Bound = tuple[int, int, int]  # t in µs, source id, channel
NOTHING: Bound = (-1, ALL, ALL)


@dataclass(slots=True)
class MergeChannel:
    """One FIFO of one producer in one partition; a function of the last commit and of what was read since."""

    index: int
    producer: int
    partition: TopicPartition
    received: int = 0  # last seq
    processed: int = 0  # last seq
    bound: Bound = NOTHING
    generation: int = -1  # of the frame received last; -1: none since the start
    digest: int = 0  # after ``received``, if there is no ``last``
    last: DecodedFrame | None = None  # received last
    queue: deque[DecodedFrame] = field(default_factory=deque)
    watermarks: ReceivedWatermarks = field(default_factory=ReceivedWatermarks)
    skip_offset: int | None = None  # of the first frame that was not admitted

    @property
    def received_digest(self) -> int:
        """The digest after the record received last."""
        return self.digest if self.last is None else self.last.digest_at(len(self.last.pairs))

    @property
    def processed_digest(self) -> int:
        """The digest after the record processed last."""
        return self.queue[0].digest_at(self.queue[0].start) if self.queue else self.received_digest

    @property
    def processed_upto(self) -> int:
        """The time up to which all records and watermarks are processed, in µs."""
        records = self.queue[0].pairs[self.queue[0].start][0] - 1 if self.queue else upto(self.bound)
        return min(records, self.watermarks.first_t - 1)

    @property
    def waits(self) -> bool:
        """Whether something of it waits for other channels only."""
        return bool(self.queue) or self.watermarks.first_t <= upto(self.bound)

    def resume(self, position: int) -> int:
        """Return the offset of the first message with something that is not processed: at most ``position``."""
        position = min(position, self.watermarks.first_offset)
        return min(position, self.queue[0].offset) if self.queue else position


def upto(bound: Bound) -> int:
    """Return the time up to which a bound has everything behind it, in µs."""
    return bound[0] if bound[1] == ALL else bound[0] - 1
