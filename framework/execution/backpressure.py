"""Tells whether the consumers of a source's streams are too far behind for it to go on (B1)."""

from collections.abc import Sequence

from framework.execution.limits import AGAIN_MS
from framework.ports import Log
from protocol.ids import TopicPartition


class Backpressure:
    """Measures the streams when they may be too long, and while they are; else a source never waits for the answer.

    Each producer of a stream measures by itself, so it may send its share of the room before it measures again.
    """

    def __init__(self, log: Log, streams: Sequence[TopicPartition], messages_max: int) -> None:
        """``messages_max``: untrimmed messages in a partition; there are as many producers as partitions."""
        self._log = log
        self._streams = streams
        self._messages_max = messages_max
        self._room = 0  # messages that may be sent before the next look
        self._behind = False
        self._due_ms = 0.0

    def sent(self) -> None:
        """Count a message to one of the streams."""
        self._room -= 1

    def behind(self, now_ms: float) -> bool:
        """Return whether a partition holds too much."""
        if now_ms >= self._due_ms if self._behind else self._room <= 0:
            bounds = (self._log.bounds(partition) for partition in self._streams)
            left = self._messages_max - max((end - start for start, end in bounds), default=0)
            self._behind, self._due_ms = left < 0, now_ms + AGAIN_MS
            self._room = max(1, left // max(1, len(self._streams)))
        return self._behind
