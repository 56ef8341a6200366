"""Holds what the client has fetched of one partition and no task has read; by columns, with no code per message."""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, islice, repeat
from operator import add, itemgetter
from typing import Any, NamedTuple

from confluent_kafka import Message

from grete.errors import FrameworkError
from grete.ports import LogRow, row_of
from grete.protocol.frames import encode_headers
from grete.settings import MiB

ROW_BYTES = 48  # what a row counts beside its blobs, as in the other logs
KEPT_BYTES_MAX = 2 * MiB  # read and kept for the other tasks here that read the same partition: they take turns

# Columns of messages. The client's types allow None, which is for errors: a message has all.
_KEY: Callable[[Message], Any] = Message.key
_VALUE: Callable[[Message], Any] = Message.value
_HEADERS: Callable[[Message], Any] = Message.headers
_TIME_MS = itemgetter(1)  # of Message.timestamp
_ROW_OFFSET: Callable[[LogRow], int] = itemgetter(0)


class _PastRead(NamedTuple):
    """The rows that one read returned, and the offset that its caller asked for."""

    begin: int
    bytes: int
    rows: list[LogRow]


class KeptReads:
    """The last reads of one partition, for the other tasks here that read it, too: as many as fit, and one at least."""

    __slots__ = ("_bytes", "_reads")

    def __init__(self) -> None:
        self._bytes = 0
        self._reads = deque[_PastRead]()

    def add(self, read: _PastRead) -> None:
        """Keep a read; the oldest ones go."""
        self._reads.append(read)
        self._bytes += read.bytes
        while self._bytes > KEPT_BYTES_MAX and len(self._reads) > 1:
            self._bytes -= self._reads.popleft().bytes

    def again(self, offset: int) -> list[LogRow] | None:
        """Return the rows of a kept read from ``offset`` on; None: it is not kept."""
        for kept in self._reads:
            if kept.begin <= offset <= kept.rows[-1].offset:
                return kept.rows[bisect_left(kept.rows, offset, key=_ROW_OFFSET) :]
        return None


class ReadAhead:
    """One assigned partition: what was fetched and not yet read. Offsets: asked ≤ rows < fetched."""

    __slots__ = (
        "asked", "asleep", "doubt", "end", "failure", "fetched", "kept", "late_s", "passed", "rows", "sure", "totals",
    )  # fmt: skip

    def __init__(self, offset: int, end: int, *, keeps: bool = False) -> None:
        """``keeps``: what was read may be asked for again, by another task."""
        self.asked = offset  # what a reader that goes on asks for next
        self.fetched = offset  # everything before it was fetched, or cannot be read (transaction markers)
        self.end = end  # of the partition when somebody last looked: a read does not stop short of it
        self.rows: list[LogRow] = []
        self.totals: list[int] = []  # bytes of all rows since the seek, up to and with each of ``rows``
        self.passed = 0  # bytes of those that were read
        self.asleep = False  # not assigned for now: too much is waiting here
        self.sure = False  # the first answer after the seek was the one sought
        self.doubt = -1  # the first answer after the seek, if it was another
        self.late_s = 0.0  # by the reader's clock: from then on a read waits for what has not come
        self.failure: FrameworkError | None = None
        self.kept = KeptReads() if keeps else None

    def add(self, offsets: Sequence[int], messages: Sequence[Message]) -> None:
        """Take messages that come after all others."""
        keys, values = list(map(_KEY, messages)), list(map(_VALUE, messages))
        times = list(map(_TIME_MS, map(Message.timestamp, messages)))
        cells = [encode_headers(headers) if headers else None for headers in map(_HEADERS, messages)]
        sizes = map(add, map(add, _lengths(keys), _lengths(values)), map(add, repeat(ROW_BYTES), _lengths(cells)))
        totals = accumulate(sizes, initial=self.totals[-1] if self.totals else self.passed)
        self.totals.extend(islice(totals, 1, None))
        self.rows.extend(map(row_of, zip(offsets, times, times, keys, values, cells, strict=True)))
        self.fetched = offsets[-1] + 1

    def take(self, max_bytes: int) -> list[LogRow]:
        """Remove and return the first rows: at least one if there is one, no more than reach ``max_bytes``."""
        stop, before = bisect_left(self.totals, self.passed + max_bytes) + 1, self.passed
        rows, self.passed = self.rows[:stop], self.totals[:stop][-1] if self.rows else self.passed
        del self.rows[:stop], self.totals[:stop]
        if rows:
            if self.kept is not None:
                self.kept.add(_PastRead(self.asked, self.passed - before, rows))
            self.asked = rows[-1].offset + 1
        return rows

    @property
    def bytes(self) -> int:
        """The bytes of ``rows``."""
        return self.totals[-1] - self.passed if self.totals else 0


def _lengths(cells: Sequence[bytes | None]) -> Iterable[int]:
    """Return the length of each cell, 0 for a null."""
    return [len(cell or b"") for cell in cells] if None in cells else map(len, cells)  # type: ignore[arg-type]  # no None is among them
