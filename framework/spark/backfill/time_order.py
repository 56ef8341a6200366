"""Rows of blocks in the order of time: blocks whose times overlap are sorted together, on disk if they are many.

At one time, rows go by their places: the path of the file, the block of it that Spark has read, the number of the row.
Files that are in the order of time cost a comparison for each block.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from heapq import heappop, heappush
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

BlockPlace = tuple[str, int, int]  # of a block: path, block of the file, number of its first row in the split

_HELD_BYTES_MAX = 32 << 20  # of rows that wait for others; sorting them takes up to four times that
_SORTED_BYTES_MIN = 2 << 20  # else few rows would be sorted again with each block
_ORDER = ("_time", "_number")  # columns of rows on disk
_SPILLED_BYTES = 256 << 10  # of a batch on disk: one of each run is in memory


class OrderedRows(NamedTuple):
    """Rows in order: their times, not below that of the row before, and the numbers of their blocks."""

    rows: Any
    times: Any
    blocks: Any

    def cut(self, begin: int, end: int) -> "OrderedRows":
        """Return the rows from ``begin`` up to ``end``."""
        return OrderedRows(self.rows.slice(begin, end - begin), self.times[begin:end], self.blocks[begin:end])


Head = tuple[
    int, BlockPlace, int, OrderedRows, Iterator[OrderedRows]
]  # time and place of the next run of a source, a number, the others


class TimeOrder:
    """Merges the blocks of one partition, which come in the order of their first times and then of their places."""

    def __init__(self, held_bytes_max: int = _HELD_BYTES_MAX, sorted_bytes_min: int = _SORTED_BYTES_MIN) -> None:
        """``held_bytes_max``: of rows in memory, about; ``sorted_bytes_min``: of rows that are worth a sort."""
        self._bytes_max, self._bytes_min = held_bytes_max, sorted_bytes_min
        self._places: list[BlockPlace] = []  # by number of a block
        self._heads: list[Head] = []
        self._count = 0
        self._files = ExitStack()

    def merged(self, blocks: Iterable[tuple[BlockPlace, Any, Any]]) -> Iterator[Any]:
        """Yield the rows; ``blocks``: place, rows in the order of time, their times."""
        held: list[OrderedRows] = []
        size = rest = 0
        with self._files:
            self._push(self._runs(blocks))
            while self._heads:
                *_, run, others = heappop(self._heads)
                self._push(others)
                held.append(run)
                size += run.rows.nbytes
                following = self._heads[0] if self._heads else None
                if len(held) == 1 and self._before(run, following) == len(run.times):
                    yield run.rows
                elif following is None or size >= 2 * rest + self._bytes_min:
                    run = self._sorted(held)
                    ready = self._before(run, following)
                    if ready:
                        yield run.rows.slice(0, ready)
                    run = run.cut(ready, len(run.times))
                    size = run.rows.nbytes
                    if size > self._bytes_max:
                        self._push(self._spilled(run))
                    elif size:
                        held, rest = [run], size
                        continue
                else:
                    continue
                held, size, rest = [], 0, 0

    def _runs(self, blocks: Iterable[tuple[BlockPlace, Any, Any]]) -> Iterator[OrderedRows]:
        for place, rows, times in blocks:
            self._places.append(place)
            yield OrderedRows(rows, times, np.full(len(times), len(self._places) - 1, np.int32))

    def _push(self, source: Iterator[OrderedRows]) -> None:
        """Take the next run of a source."""
        if (run := next(source, None)) is not None:
            self._count += 1  # no two runs are compared
            heappush(self._heads, (int(run.times[0]), self._places[run.blocks[0]], self._count, run, source))

    def _before(self, run: OrderedRows, following: Head | None) -> int:
        """Return the number of rows of a run before all that is still to come."""
        if following is None:
            return len(run.times)
        time, place = following[:2]
        if run.times[-1] < time:
            return len(run.times)
        begin, end = np.searchsorted(run.times, time, "left"), np.searchsorted(run.times, time, "right")
        numbers, counts = np.unique(run.blocks[begin:end], return_counts=True)
        return int(begin) + sum(int(c) for n, c in zip(numbers, counts, strict=True) if self._places[n] <= place)

    def _sorted(self, held: Sequence[OrderedRows]) -> OrderedRows:
        if len(held) == 1:
            return held[0]
        times, blocks = np.concatenate([run.times for run in held]), np.concatenate([run.blocks for run in held])
        numbers, found = np.unique(blocks, return_inverse=True)
        ranks = np.empty(len(numbers), np.int32)
        ranks[sorted(range(len(numbers)), key=lambda index: self._places[numbers[index]])] = np.arange(len(numbers))
        order = np.lexsort((ranks[found], times))
        rows = pa.Table.from_batches([run.rows for run in held]).combine_chunks().to_batches()[0]
        return OrderedRows(rows.take(pa.array(order)), times[order], blocks[order])

    def _spilled(self, run: OrderedRows) -> Iterator[OrderedRows]:
        """Write a run to disk; return what reads it again."""
        folder = self._files.enter_context(TemporaryDirectory(prefix="grete-order-", dir=_scratch()))
        path = str(Path(folder) / "rows")
        columns = [*run.rows.columns, pa.array(run.times), pa.array(run.blocks)]
        rows = pa.RecordBatch.from_arrays(columns, names=[*run.rows.schema.names, *_ORDER])
        step = max(1, len(rows) * _SPILLED_BYTES // rows.nbytes)
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
            for begin in range(0, len(rows), step):
                writer.write_batch(rows.slice(begin, step))
        return self._read(path)

    def _read(self, path: str) -> Iterator[OrderedRows]:
        for rows in pa.ipc.open_stream(self._files.enter_context(pa.OSFile(path, "rb"))):
            times, blocks = (rows.column(name).to_numpy() for name in _ORDER)
            yield OrderedRows(rows.drop_columns(list(_ORDER)), times, blocks)


def _scratch() -> str | None:
    """Return a folder for files: Spark tells its Python processes where it has its own."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
