"""Searches partitions of a topic from their ends, the latest rows first, in steps of bounded time, rows and bytes."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from grete.errors import ConfigError
from grete.logs.partition_reader import rows_left
from grete.ports import LogReader, LogRow
from grete.protocol.ids import TopicPartition

FIRST_ROWS, MOST_ROWS = 16, 4_096  # offsets of a partition that are read at once: few of large records
WINDOW_BYTES = 1 << 20  # of rows that a partition has in memory
T = TypeVar("T")


class SearchBounds(NamedTuple):
    """The bounds of one step: matches, rows read, bytes read, seconds."""

    found: int = 100
    rows: int = 20_000
    bytes: int = 32 << 20
    seconds: float = 4.0


class SearchStep(NamedTuple, Generic[T]):
    """The matches of a step. ``read``: rows looked at. ``next``: where the next step begins, None: all was read."""

    found: list[T]
    read: int
    next: str | None


class _Backwards:
    """A partition, read from ``above`` down. ``rows``: those that have been read and not looked at, oldest first.

    ``most``: rows that are read at once. To begin somewhere takes a broker some 20 ms, so it is soon that many.
    """

    def __init__(self, at: TopicPartition, start: int, above: int, most: int) -> None:
        self.at, self.start, self.above = at, start, above
        self.rows = deque[LogRow]()
        self._offsets, self._most = min(FIRST_ROWS, most), most

    def fill(self, log: LogReader) -> int:
        """Read the rows just below; return how many bytes were read."""
        begin = max(self.start, self.above - self._offsets)
        held = read = 0
        for row in rows_left(log, self.at, begin, self.above):
            self.rows.append(row)
            held, read = held + _size(row), read + _size(row)
            while held > WINDOW_BYTES and len(self.rows) > 1:  # older ones are read again: memory is bounded
                held -= _size(self.rows.popleft())
        if not self.rows:
            self.above = begin  # the ends of transactions take offsets, too
        if read > WINDOW_BYTES:
            self._offsets = max(1, self._offsets // 4)
        elif read < WINDOW_BYTES // 4 and 4 * len(self.rows) <= self._most:
            self._offsets = min(4 * self._offsets, MOST_ROWS)
        return read

    def take(self) -> LogRow:
        """Return the latest row."""
        row = self.rows.pop()
        self.above = row.offset
        return row


def search(
    log: LogReader,
    partitions: Sequence[TopicPartition],
    after: str,
    match: Callable[[TopicPartition, LogRow], T | None],
    bounds: SearchBounds,
) -> SearchStep[T]:
    """Return the matches of a step, what ``match`` makes of rows: each partition from its end down, the latest first.

    ``after``: ``next`` of the step before, "": none. A step reads at least one row if there is one, so that it gets
    further at any bound; a partition that it has no time to ask comes with a later one. Raises ConfigError for another
    ``after``.
    """
    parts = _parts(log, partitions, after, max(1, bounds.rows // max(1, len(partitions))))
    until_s = time.monotonic() + bounds.seconds
    found: list[T] = []
    looked = size = fills = 0

    def is_over() -> bool:
        return looked >= bounds.rows or size >= bounds.bytes or time.monotonic() > until_s

    for part in parts:
        while not part.rows and part.above > part.start and not (fills and is_over()):
            size, fills = size + part.fill(log), fills + 1
    heap = [(-part.rows[-1].timestamp_ms, number) for number, part in enumerate(parts) if part.rows]
    heapify(heap)
    while heap and len(found) < bounds.found:
        _, number = heappop(heap)
        part = parts[number]
        row = part.take()
        looked += 1
        if (shown := match(part.at, row)) is not None:
            found.append(shown)
        while not part.rows and part.above > part.start and not is_over():
            size += part.fill(log)
        if part.rows:
            heappush(heap, (-part.rows[-1].timestamp_ms, number))
        elif part.above > part.start:  # its next row may be the latest of all: that is of the next step
            break
    left = any(part.above > part.start for part in parts)
    return SearchStep(found, looked, ".".join(str(part.above) for part in parts) if left else None)


def _parts(log: LogReader, partitions: Sequence[TopicPartition], after: str, most: int) -> list[_Backwards]:
    places = after.split(".") if after else []
    if places and (len(places) != len(partitions) or not all(p.isdecimal() and len(p) < 19 for p in places)):
        raise ConfigError(f"after={after[:80]!r}: give what the page before has as next, or leave it out")
    ends = log.all_bounds(partitions)
    above = map(int, places) if places else (ends[at][1] for at in partitions)
    found = zip(partitions, above, strict=True)
    return [_Backwards(at, ends[at][0], min(place, ends[at][1]), most) for at, place in found]


def _size(row: LogRow) -> int:
    return len(row.key or b"") + len(row.value or b"") + len(row.headers or b"")
