"""Changes as Arrow columns: of each commit every key that it has changed, once, with its last value; None: deleted."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grete.ports import LogReader
from grete.spark.format.changes import ChangelogRange, Changes, changes
from grete.spark.format.columns import Column
from grete.spark.format.latest_values import entries_of
from grete.spark.format.reader import BATCH_ROWS
from grete.stores.overlay.expiring_store import EXPIRY_BYTES


class StoreColumns(NamedTuple):
    """The store whose changes are read, and how its bytes become columns."""

    store: int
    name: str
    key: Column
    value: Column
    expires: bool  # each value begins with its expiry


def change_rows(log: LogReader, part: ChangelogRange, columns: StoreColumns) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a range, oldest first. Raises what ``changes`` does; SerdeError: not the store's serdes."""
    commits: list[Changes] = []
    keys, values, numbers = [], [], []
    rows = 0
    for each in changes(log, part, columns.store):
        for at, message in enumerate(each.messages):
            _, own_keys, own_values = entries_of(message, columns.store)
            if at in each.rewritten:  # what has expired is deleted by it
                gone = own_values.is_null()
                own_keys, own_values = own_keys.filter(gone), own_values.filter(gone)
            if len(own_keys):
                keys.append(own_keys)
                values.append(own_values)
                numbers.append(np.full(len(own_keys), len(commits), np.int64))
                rows += len(own_keys)
        commits.append(each)
        if rows >= BATCH_ROWS:
            yield from _batches(part, columns, commits, *_last_of_each(keys, values, numbers))
            commits, keys, values, numbers, rows = [], [], [], [], 0
    if rows:
        yield from _batches(part, columns, commits, *_last_of_each(keys, values, numbers))


def _last_of_each(keys: list[Any], values: list[Any], numbers: list[Any]) -> tuple[Any, Any, Any]:
    """Return the columns with one row for a key of a commit."""
    all_keys, all_values, by = pa.concat_arrays(keys), pa.concat_arrays(values), np.concatenate(numbers)
    codes = all_keys.dictionary_encode()
    cells = by * len(codes.dictionary) + codes.indices.to_numpy()
    unique, behind = np.unique(cells[::-1], return_index=True)
    if len(unique) == len(cells):
        return all_keys, all_values, by
    kept = np.sort(len(cells) - 1 - behind)
    return all_keys.take(pa.array(kept)), all_values.take(pa.array(kept)), by[kept]


def _batches(
    part: ChangelogRange, columns: StoreColumns, commits: list[Changes], keys: Any, values: Any, numbers: Any
) -> Iterator[pa.RecordBatch]:
    ids = pa.array([each.commit.checkpoint_id for each in commits], pa.int64())
    generations = pa.array([each.commit.generation for each in commits], pa.int32())
    offsets = pa.array([each.offset for each in commits], pa.int64())
    if columns.expires:
        values = pc.binary_replace_slice(values, 0, EXPIRY_BYTES, b"")
    for start in range(0, len(keys), BATCH_ROWS):
        by = pa.array(numbers[start : start + BATCH_ROWS])
        written = ids.take(by)
        yield pa.RecordBatch.from_arrays(
            [
                columns.key.decoded(keys.slice(start, BATCH_ROWS)),
                _values(columns.value, values.slice(start, BATCH_ROWS)),
                pa.repeat(columns.name, len(by)),
                pa.repeat(pa.scalar(part.changelog.partition, pa.int32()), len(by)),
                written,
                written,
                generations.take(by),
                offsets.take(by),
            ],
            names=["key", "value", "store", "partition", "checkpoint_id", "written", "generation", "offset"],
        )


def _values(column: Column, cells: Any) -> Any:
    """Return the decoded cells, null where an entry was deleted."""
    there = cells.is_valid()
    if not cells.null_count:
        return column.decoded(cells)
    decoded = column.decoded(cells.filter(there))
    places = pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), None)
    return decoded.take(places)
