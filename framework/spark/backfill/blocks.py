"""History without offsets on its way to its tasks, as blocks: many rows of one partition in one cell, in file order.

Spark shuffles and sorts rows one by one, which costs more than the tasks' own work. A block is an Arrow stream in a
binary cell, so Spark moves a few large rows, and the order of the files' rows is that of the blocks.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grete.spark.murmur2 import partitions_of

DDL = "partition int, path string, block bigint, first bigint, rows binary"
ORDER = ("path", "block", "first")  # of the blocks of a partition; first: number of its first row in the split
_ROWS_MAX, _BYTES_MAX = 2_500, 16 << 20  # of a block, about; of all blocks that are open
_PLACE = ("_path", "_block")


def cutter(partitions: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the function that makes blocks of a split's rows: ``_path`` and ``_block``, then a task's columns."""

    def cut(batches: Iterable[Any]) -> Iterator[Any]:
        held: list[Any] = []
        place, first, count, size = None, 0, 0, 0
        for batch in batches:
            for each, part in _by_place(batch):
                if held and (each != place or count >= _ROWS_MAX * partitions or size >= _BYTES_MAX):
                    yield _blocks(held, place, first, partitions)
                    first, held, count, size = first + count, [], 0, 0
                place, count, size = each, count + len(part), size + part.nbytes
                held.append(part)
        if held:
            yield _blocks(held, place, first, partitions)

    return cut


def rows_of(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches of rows, whether they come as they are or as blocks; no empty ones."""
    for batch in batches:
        if "rows" not in batch.schema.names:
            if len(batch):
                yield batch
            continue
        for cell in batch.column("rows"):
            yield from pa.ipc.open_stream(cell.as_buffer())


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


def _blocks(held: list[Any], place: Any, first: int, partitions: int) -> Any:
    """Return a block for each partition that has any of the rows; they keep their order."""
    rows = pa.Table.from_batches(held).combine_chunks().to_batches()[0]
    numbers = _numbers(rows, partitions)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=partitions))
    sorted_rows = rows.take(pa.array(order))
    found, cells = [], []
    begin = 0
    for number, end in enumerate(ends.tolist()):
        if end > begin:
            found.append(number)
            cells.append(_cell(sorted_rows.slice(begin, end - begin)))
        begin = end
    path, block = place
    return pa.RecordBatch.from_arrays(
        [
            pa.array(found, pa.int32()),
            pa.array([path] * len(found), pa.string()),
            pa.array([block] * len(found), pa.int64()),
            pa.array([first] * len(found), pa.int64()),
            pa.array(cells, pa.binary()),
        ],
        names=["partition", "path", "block", "first", "rows"],
    )


def _numbers(rows: Any, partitions: int) -> Any:
    """Return the partition of each row: by key as live, by its value's checksum if it has none."""
    numbers = partitions_of(rows.column("key"), partitions)
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
