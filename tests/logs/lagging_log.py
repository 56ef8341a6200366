"""A log whose reads fall short: a message that it has acknowledged can be read only when it was asked for a few times.

So does a broker that has just become leader, or a consumer that is behind. Everything else is the log's own.
"""

from collections import Counter

from grete.errors import OffsetOutOfRange
from grete.ports import LogReader, LogRow
from grete.protocol.ids import TopicPartition


class LaggingLog:
    """Each read from a new place comes back empty ``times`` times, then with one message.

    ``bounds_lag``: of these partitions the bounds end, for as many questions, before the last message.
    """

    def __init__(self, log: LogReader, times: int = 3, bounds_lag: frozenset[TopicPartition] = frozenset()) -> None:
        self._log, self._times, self._bounds_lag = log, times, bounds_lag
        self.asked: Counter[tuple[TopicPartition, int]] = Counter()
        self._bounds_asked: Counter[tuple[TopicPartition, int]] = Counter()

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return nothing, or one message."""
        end = self._log.bounds(partition)[1]
        if partition in self._bounds_lag and 0 < end < offset + 1 and self._late(partition, end):
            raise OffsetOutOfRange(f"{partition}: offset {offset} is outside")
        if offset < end:
            self.asked[partition, offset] += 1
            if self.asked[partition, offset] <= self._times:
                return []
        return self._log.read(partition, offset, 1)

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the bounds, or what they were before the last message."""
        start, end = self._log.bounds(partition)
        if partition in self._bounds_lag and start < end and self._late(partition, end):
            self._bounds_asked[partition, end] += 1
            return start, end - 1
        return start, end

    def _late(self, partition: TopicPartition, end: int) -> bool:
        return self._bounds_asked[partition, end] < self._times

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)
