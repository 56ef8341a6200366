"""History without offsets on its way to its tasks, as blocks: many rows of one partition in one cell, by time.

Spark shuffles and sorts rows one by one, which costs more than the tasks' own work. A block is an Arrow stream in a
binary cell, so Spark moves a few large rows, and sorts them by their first times. A task merges them.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grete.spark.backfill.schema import cells
from grete.spark.backfill.time_order import BlockPlace, TimeOrder
from grete.spark.murmur2 import partitions_of

DDL = "partition int, time bigint, path string, block bigint, first bigint, rows binary"
ORDER = ("time", "path", "block", "first")  # of the blocks of a partition; first: number of its first row in the split
_ROWS_MAX, _BYTES_MAX = 2_500, 16 << 20  # of a block, about; of all blocks that are open
_PLACE = ("_path", "_block")
_TIME = "_time"  # of a block whose rows are not in the order of the column timestamp

SeenBlock = Callable[[str, int, int, int], None]  # of a block: path, rows, first and last time in ms
PlacingPart = Callable[[bytes], bytes] | None
TimesOf = Callable[[Sequence[bytes | None], Sequence[int]], Sequence[int]]  # of values and the topic's times, in ms


def _nothing(_file: str, _rows: int, _first_ms: int, _last_ms: int) -> None:
    """Take no account."""


def cutter(
    partitions: int, times_of: TimesOf | None = None, placing: PlacingPart = None
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the function that makes blocks of a split's rows: ``_path`` and ``_block``, then a task's columns.

    ``times_of``: the times to order them by; None: the column timestamp. ``placing``: as of ``partitions_of``.
    """
    numbers_of = partial(_numbers, partitions=partitions, placing=placing)

    def cut(batches: Iterable[Any]) -> Iterator[Any]:
        held: list[Any] = []
        place, first, count, size = None, 0, 0, 0
        for batch in batches:
            for each, part in _by_place(batch):
                if held and (each != place or count >= _ROWS_MAX * partitions or size >= _BYTES_MAX):
                    yield _blocks(held, place, first, numbers_of, times_of)
                    first, held, count, size = first + count, [], 0, 0
                place, count, size = each, count + len(part), size + part.nbytes
                held.append(part)
        if held:
            yield _blocks(held, place, first, numbers_of, times_of)

    return cut


def rows_of(batches: Iterable[Any], seen: SeenBlock = _nothing) -> Iterator[Any]:
    """Yield batches of rows, as they are or out of blocks in the order of time; no empty ones.

    ``seen`` is told of each block.
    """
    found = iter(batches)
    for batch in found:
        if "rows" in batch.schema.names:
            yield from TimeOrder().merged(_opened(chain([batch], found), seen))
        elif len(batch):
            yield batch


def _opened(batches: Iterable[Any], seen: SeenBlock) -> Iterator[tuple[BlockPlace, Any, Any]]:
    """Yield the place, the rows and their times of each block."""
    for batch in batches:
        places = zip(*(batch.column(name).to_pylist() for name in ORDER[1:]), strict=True)
        for place, cell in zip(places, batch.column("rows"), strict=True):
            for rows in pa.ipc.open_stream(cell.as_buffer()):
                own = _TIME in rows.schema.names
                times = rows.column(_TIME if own else "timestamp").to_numpy()
                seen(place[0], len(rows), int(times[0]), int(times[-1]))
                yield place, rows.drop_columns([_TIME]) if own else rows, times


def _by_place(batch: Any) -> Iterator[tuple[tuple[str, int], Any]]:
    """Yield the parts of a batch that are of one file and block, without the columns that say so."""
    rows = batch.drop_columns(list(_PLACE))
    paths, blocks = (pc.run_end_encode(batch.column(name)) for name in _PLACE)
    begin = 0
    for end in sorted({*paths.run_ends.to_pylist(), *blocks.run_ends.to_pylist()}):
        yield (
            (batch.column("_path")[begin].as_py(), batch.column("_block")[begin].as_py()),
            rows.slice(begin, end - begin),
        )
        begin = end


def _blocks(held: list[Any], place: Any, first: int, numbers_of: Callable[[Any], Any], times_of: TimesOf | None) -> Any:
    """Return a block for each partition that has any of the rows, in the order of time, then in their own."""
    rows = pa.Table.from_batches(held).combine_chunks().to_batches()[0]
    numbers, times = numbers_of(rows), _times(rows, times_of)
    if times_of is not None or rows.column("timestamp").null_count:
        rows = rows.append_column(_TIME, pa.array(times))
    rises = bool((times[1:] >= times[:-1]).all())
    order = np.argsort(numbers, kind="stable") if rises else np.lexsort((times, numbers))
    ends = np.cumsum(np.bincount(numbers))
    sorted_rows, sorted_times = rows.take(pa.array(order)), times[order]
    found, begins, blocks = [], [], []
    begin = 0
    for number, end in enumerate(ends.tolist()):
        if end > begin:
            found.append(number)
            begins.append(begin)
            blocks.append(_cell(sorted_rows.slice(begin, end - begin)))
        begin = end
    path, block = place
    return pa.RecordBatch.from_arrays(
        [
            pa.array(found, pa.int32()),
            pa.array(sorted_times[begins]),
            pa.array([path] * len(found), pa.string()),
            pa.array([block] * len(found), pa.int64()),
            pa.array([first] * len(found), pa.int64()),
            pa.array(blocks, pa.binary()),
        ],
        names=["partition", *ORDER, "rows"],
    )


def _times(rows: Any, times_of: TimesOf | None) -> Any:
    """Return the time of each row; one without a time, which is no record, has that of a row beside it."""
    column = rows.column("timestamp")
    if column.null_count:
        column = pc.fill_null(pc.fill_null_backward(pc.fill_null_forward(column)), 0)
    if times_of is None:
        return column.cast(pa.int64()).to_numpy()
    return np.array(times_of(cells(rows.column("value")), column.to_pylist()), np.int64)


def _numbers(rows: Any, *, partitions: int, placing: PlacingPart) -> Any:
    """Return the partition of each row: by key as live, by its value's checksum if it has none."""
    numbers = partitions_of(rows.column("key"), partitions, placing)
    if not numbers.null_count:
        return numbers.to_numpy()
    values = rows.column("value").filter(numbers.is_null()).to_pylist()
    chosen = numbers.fill_null(0).to_numpy(zero_copy_only=False).copy()
    chosen[numbers.is_null().to_numpy(zero_copy_only=False)] = [
        zlib.crc32(value or b"") % partitions for value in values
    ]
    return chosen


def _cell(rows: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole
