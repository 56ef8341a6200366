"""The open frame of one partition of a stream: what a task sends, column by column."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from grete.protocol.frames import encode_columns, encode_headers
from grete.protocol.ids import TopicPartition

AnyHeaders = Sequence[tuple[str, bytes | None]]

_RECORD_BYTES = 24  # of a frame: lengths and timestamp; a null key or value costs no more


class Buffer:
    """The open frame of one partition. The lists live as long as the buffer: senders keep their append methods."""

    __slots__ = ("headers", "keys", "partition", "timestamps", "values")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: list[bytes | None] = []  # empty, or shorter than the others: the rest has none

    def add_headers(self, headers: AnyHeaders) -> None:
        """Give the record appended last its headers."""
        self.headers.extend([None] * (len(self.keys) - 1 - len(self.headers)))
        self.headers.append(encode_headers(headers))

    def drop_last(self) -> None:
        """Take back the record appended last."""
        for column in (self.keys, self.values, self.timestamps):
            column.pop()
        del self.headers[len(self.keys) :]

    def clear(self) -> None:
        """Empty all columns."""
        for column in (self.keys, self.values, self.timestamps, self.headers):
            column.clear()

    def frames(self, bytes_max: int) -> Iterator[tuple[TopicPartition, int, bytes]]:
        """Yield (partition, count, body): as few frames as keep to ``bytes_max`` (a larger record has its own)."""
        keys, values, times = self.keys, self.values, self.timestamps
        assert len(keys) == len(values) == len(times), f"{self.partition}: a record lacks a column"
        assert len(self.headers) <= len(keys), f"{self.partition}: headers without their records"
        headers = [*self.headers, *[None] * (len(keys) - len(self.headers))] if any(self.headers) else None
        start, count = 0, len(keys)
        for stop in self.cuts(bytes_max):
            whole = stop - start == count
            columns = (keys, values, times) if whole else (keys[start:stop], values[start:stop], times[start:stop])
            cells = headers if whole or headers is None else headers[start:stop]
            yield self.partition, stop - start, encode_columns(*columns, cells)
            start = stop

    def cuts(self, bytes_max: int) -> list[int]:
        """Return the end of each frame: as few frames as keep to ``bytes_max``."""
        columns: list[list[bytes | None]] = [self.keys, self.values, self.headers]
        count = len(self.keys)
        if sum(sum(map(len, filter(None, column))) for column in columns) + count * _RECORD_BYTES <= bytes_max:
            return [count]
        sizes = [len(key or b"") + len(value or b"") + _RECORD_BYTES for key, value in zip(*columns[:2], strict=True)]
        for index, cell in enumerate(self.headers):
            sizes[index] += len(cell or b"")
        ends = list(accumulate(sizes))
        cuts = [0]
        while cuts[-1] < count:
            room = (ends[cuts[-1] - 1] if cuts[-1] else 0) + bytes_max
            cuts.append(max(cuts[-1] + 1, bisect_right(ends, room)))
        assert cuts[-1] == count, f"{self.partition}: the frames end at record {cuts[-1]} of {count}"
        return cuts[1:]
