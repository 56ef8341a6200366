"""Reading a partition, to a known end or on and on: the one place that knows an empty read from an end.

A log whose reads lag (a broker that has just become leader, a consumer that is behind) returns fewer messages than it
has acknowledged. To take that for the end would be to miss commits, claims, or inputs.
"""

import time
from collections.abc import Callable, Iterator

from grete.errors import OffsetOutOfRange, TransientError
from grete.ports import LogReader, LogRow
from grete.protocol.ids import TopicPartition

READABLE_S_MAX = 60.0  # a message that is known to be in the log can be read by then
_READ_BYTES = 1 << 20  # at once: some frames
_WAIT_S = 0.01  # between two reads of what is not readable yet


class PartitionReader:
    """Reads one partition from ``position`` up to ``end``, one batch a call, for loops that may not block.

    ``end``: what ``bounds`` has said: what is just before it may be the log's own (the mark of a transaction), so the
    bounds are asked again before an empty read is taken for the end. ``acknowledged``: the offset behind a message
    that is known to be there, which the log has acknowledged or shown; up to there no empty read is the end.
    """

    def __init__(
        self,
        log: LogReader,
        partition: TopicPartition,
        position: int,
        end: int,
        *,
        acknowledged: int = 0,
        seconds_max: float = READABLE_S_MAX,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read nothing yet. ``seconds_max``: the time without any message after which ``read`` gives up."""
        self.partition, self.position, self.end = partition, position, max(end, acknowledged)
        self._log, self._acknowledged = log, acknowledged
        self._seconds_max, self._clock_s = seconds_max, clock_s
        self._late_since: float | None = None
        self._done = False

    def read(self, bytes_max: int = _READ_BYTES) -> list[LogRow] | None:
        """Return the next rows; an empty list at the end; None: what is there cannot be read yet, ask again.

        Raises OffsetOutOfRange if ``position`` has been trimmed, TransientError if nothing comes for too long. A log
        that says after that time, too, that it ends before ``acknowledged`` has lost messages: that is its end.
        """
        if self._done or self.position >= self.end:
            return []
        try:
            rows = self._log.read(self.partition, self.position, bytes_max)
        except OffsetOutOfRange:
            if self.position < self._log.bounds(self.partition)[0]:
                raise
            rows = []  # beyond the end that the log knows of now
        if rows:
            self._late_since = None
            self.position = rows[-1].offset + 1
            return [row for row in rows if row.offset < self.end]
        now = self._clock_s()
        self._late_since = now if self._late_since is None else self._late_since
        too_late = now - self._late_since > self._seconds_max
        if (too_late or self.position >= self._acknowledged) and self._log.bounds(self.partition)[1] <= self.position:
            self._done = True
            return []
        if too_late:
            raise TransientError(
                f"{self.partition}: the log has messages up to offset {self.end - 1}, and for "
                f"{now - self._late_since:.0f} s nothing could be read from offset {self.position} on: check its "
                "brokers (replicas in sync, a leader that has just changed), and try again",
                partition=self.partition,
            )
        return None


class PartitionFollower:
    """Reads what comes to a partition, by default behind the end that it had; it is asked again and again.

    It takes no read for the end, so it needs no bounds: after an empty read the next call asks again.
    """

    def __init__(self, log: LogReader, partition: TopicPartition, position: int | None = None) -> None:
        """Begin at an offset, or at the end of the partition."""
        self._log, self._partition = log, partition
        self._position = log.bounds(partition)[1] if position is None else position

    def new(self) -> Iterator[LogRow]:
        """Yield the rows that can be read now; what is trimmed meanwhile is left out."""
        while True:
            try:
                found = self._log.read(self._partition, self._position, _READ_BYTES)
            except OffsetOutOfRange:
                start = self._log.bounds(self._partition)[0]
                if start <= self._position:
                    return  # the position is beyond the end that the log knows of now
                self._position = start
                continue
            if not found:
                return
            self._position = found[-1].offset + 1
            yield from found


def rows(
    log: LogReader,
    partition: TopicPartition,
    begin: int,
    end: int,
    *,
    acknowledged: int = 0,
    seconds_max: float = READABLE_S_MAX,
) -> Iterator[LogRow]:
    """Yield the rows with ``begin`` <= offset < ``end``; wait for what cannot be read yet (``PartitionReader``).

    Raises OffsetOutOfRange if ``begin`` has been trimmed, TransientError if nothing comes for too long.
    """
    reader = PartitionReader(
        log, partition, begin, end, acknowledged=acknowledged, seconds_max=seconds_max, clock_s=time.monotonic
    )
    while (found := reader.read()) != []:
        if found is None:
            time.sleep(_WAIT_S)
        else:
            yield from found


def rows_left(log: LogReader, partition: TopicPartition, begin: int, end: int) -> Iterator[LogRow]:
    """Yield the rows with ``begin`` <= offset < ``end``, as ``rows`` does; what is trimmed meanwhile is left out."""
    while begin < end:
        try:
            for row in rows(log, partition, begin, end):
                begin = row.offset + 1
                yield row
        except OffsetOutOfRange:
            start = log.bounds(partition)[0]
            if start <= begin:
                raise
            begin = start
            continue
        return


def batch(log: LogReader, partition: TopicPartition, begin: int, bytes_max: int) -> list[LogRow]:
    """Return the rows that come next, none only if the log has no more: it waits for what cannot be read yet.

    Raises OffsetOutOfRange if ``begin`` has been trimmed, TransientError if nothing comes for too long.
    """
    found = log.read(partition, begin, bytes_max)
    if found:
        return found
    reader = PartitionReader(log, partition, begin, log.bounds(partition)[1])
    while (later := reader.read(bytes_max)) is None:
        time.sleep(_WAIT_S)
    return later
