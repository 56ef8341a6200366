"""Watermarks with logical times in a channel: as a deterministic task sends them, and as its consumers keep them (E2).

A task tells its event time as of multiples of ``STEP_US`` of logical time, if it has changed since: so the messages are
a function of what the task has processed, and not of how that was cut into batches. Consumers that merge by logical
time get a watermark before the frame, or progress message, that passes its time. Consumers in aligned mode, which take
a channel as it comes, get it behind the frames that led to it.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grete.core.events import Advance
from grete.protocol.control import Watermark, encode_watermark

STEP_US = 5_000  # part of the format: tasks that are started again must tell the same. As often as progress messages
NEVER = 1 << 62  # µs, and offsets
_BYTES = 48  # of a watermark that waits, about


def step_at(t: int) -> int:
    """Return the time, at or after ``t`` µs, as of which an event time reached at ``t`` is told."""
    return -(-t // STEP_US) * STEP_US


def messages(advances: Sequence[Advance], producer: int, generation: int, checkpoint: int, seq: int) -> Iterator[bytes]:
    """Yield the messages that tell of the advances; the flag of a message belongs to its last one."""
    begin = 0
    for stop, advance in enumerate(advances, 1):
        if advance.idle or stop == len(advances):
            times, watermarks, _ = zip(*advances[begin:stop], strict=True)
            yield encode_watermark(producer, generation, checkpoint, seq, advance.idle, watermarks, times)
            begin = stop


class WaitingWatermark(NamedTuple):
    """A watermark, and the offset of the message that has brought it."""

    advance: Advance
    offset: int


class ReceivedWatermarks:
    """The watermarks of one channel that are received and not processed, by their times."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[WaitingWatermark] = deque()

    @property
    def first_t(self) -> int:
        """The time of the first one; NEVER if there is none."""
        return self._queue[0].advance.t if self._queue else NEVER

    @property
    def first_offset(self) -> int:
        """The offset of the message with the first one; NEVER if there is none."""
        return self._queue[0].offset if self._queue else NEVER

    @staticmethod
    def bytes_of(message: Watermark) -> int:
        """Return the number of bytes that a waiting message takes."""
        return _BYTES * len(message.watermarks)

    def add(self, message: Watermark, offset: int, passed: int) -> int:
        """Take those above ``passed`` µs and above all that came before; return their size."""
        assert message.times is not None
        known, before = max(passed, self._queue[-1].advance.t if self._queue else passed), len(self._queue)
        last = len(message.watermarks) - 1
        for index, (t, watermark) in enumerate(zip(message.times, message.watermarks, strict=True)):
            if t > known:
                self._queue.append(WaitingWatermark(Advance(t, watermark, message.idle and index == last), offset))
        return _BYTES * (len(self._queue) - before)

    def take(self) -> tuple[WaitingWatermark, int]:
        """Remove and return the first one, and its size."""
        return self._queue.popleft(), _BYTES

    def give_back(self, watermark: WaitingWatermark) -> int:
        """Undo ``take``; return the size."""
        self._queue.appendleft(watermark)
        return _BYTES
