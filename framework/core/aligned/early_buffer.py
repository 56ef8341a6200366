"""Early arrivals (A4, A5): frames of a later checkpoint than the open one, in memory, then on disk, bounded in all."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from grete.core.actions import Process, Spill
from grete.protocol.envelope import Header
from grete.protocol.ids import TopicPartition


@dataclass(slots=True)
class EarlyFrame:
    """One admitted frame that waits for its checkpoint. ``value`` is None once it was spilled under ``key``."""

    key: int
    partition: TopicPartition
    offset: int
    header: Header
    count: int
    skip: int
    size: int
    value: bytes | None

    def process(self) -> Process:
        """Return the action that runs the task on this frame."""
        return Process(self.partition, self.offset, self.value, self.key, self.skip)


class EarlyBuffer:
    """Frames by checkpoint, in the order of arrival within a checkpoint. A cache: never the truth."""

    def __init__(self, memory_bytes_max: int, bytes_max: int) -> None:
        self.memory_bytes_max = memory_bytes_max
        self.bytes_max = bytes_max
        self.clear()
        self._key = 0

    def clear(self) -> None:
        """Forget everything."""
        self._frames: dict[int, deque[EarlyFrame]] = {}
        self.bytes = 0
        self.memory_bytes = 0
        self._dropped: list[int] = []  # keys of spilled frames that were dropped

    def fits(self, size: int) -> bool:
        """Tell whether a frame of this size stays within the bound."""
        return self.bytes + size <= self.bytes_max

    def add(self, frame: EarlyFrame) -> Spill | None:
        """Take a frame; return the action that moves it to disk if memory is full."""
        assert self.fits(frame.size)
        self._key += 1
        frame.key = self._key
        self._frames.setdefault(frame.header.checkpoint_id, deque()).append(frame)
        self.bytes += frame.size
        value = frame.value
        if value is None or self.memory_bytes + frame.size <= self.memory_bytes_max:
            self.memory_bytes += frame.size
            return None
        frame.value = None
        return Spill(frame.key, value)

    def least_checkpoint(self) -> int | None:
        """Return the smallest checkpoint that has frames."""
        return min(self._frames, default=None)

    def pop(self, checkpoint_max: int) -> EarlyFrame | None:
        """Take out the oldest frame of the smallest checkpoint, if that is at most ``checkpoint_max``."""
        checkpoint_id = self.least_checkpoint()
        if checkpoint_id is None or checkpoint_id > checkpoint_max:
            return None
        frames = self._frames[checkpoint_id]
        frame = frames.popleft()
        if not frames:
            del self._frames[checkpoint_id]
        self._account(frame)
        return frame

    def drop(self, rolled_back: Callable[[Header], bool]) -> int:
        """Drop frames whose header is rolled back; return how many records that were."""
        dropped = 0
        for checkpoint_id, frames in list(self._frames.items()):
            kept = deque[EarlyFrame]()
            for frame in frames:
                if rolled_back(frame.header):
                    self._account(frame)
                    dropped += frame.count
                    if frame.value is None:
                        self._dropped.append(frame.key)
                else:
                    kept.append(frame)
            if kept:
                self._frames[checkpoint_id] = kept
            else:
                del self._frames[checkpoint_id]
        return dropped

    def take_dropped(self) -> tuple[int, ...]:
        """Return and forget the keys of spilled frames that were dropped since the last call."""
        keys, self._dropped = tuple(self._dropped), []
        return keys

    def first_offsets(self) -> dict[tuple[int, TopicPartition], int]:
        """Return the least offset of the frames of each channel, a producer and a partition."""
        first: dict[tuple[int, TopicPartition], int] = {}
        for frame in self:
            key = (frame.header.producer, frame.partition)
            first[key] = min(first.get(key, frame.offset), frame.offset)
        return first

    def first_offset(self, partition: TopicPartition, after: int) -> int:
        """Return the least offset of the frames of a partition; ``after``, behind all of them, if it has none."""
        for frames in self._frames.values():  # those of a partition came in its order
            first = next((frame.offset for frame in frames if frame.partition == partition), after)
            after = min(after, first)
        return after

    def __iter__(self) -> Iterator[EarlyFrame]:
        """Iterate over all frames."""
        for frames in self._frames.values():
            yield from frames

    def check_invariants(self, frozen: int) -> None:
        """Raise AssertionError unless this holds between any two steps of a task that has frozen ``frozen``."""
        least = self.least_checkpoint()
        assert least is None or least > frozen, f"frames of checkpoint {least} are left behind the freeze of {frozen}"
        size = in_memory = 0
        for frame in self if self._frames else ():
            size += frame.size
            in_memory += 0 if frame.value is None else frame.size
        assert self.bytes == size <= self.bytes_max, self.bytes
        assert self.memory_bytes == in_memory <= self.memory_bytes_max, self.memory_bytes

    def _account(self, frame: EarlyFrame) -> None:
        self.bytes -= frame.size
        if frame.value is not None:
            self.memory_bytes -= frame.size
