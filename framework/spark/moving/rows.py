"""Reads the state of a task in an executor, as rows on their way to the tasks that get them; nothing is folded yet.

Each row that a commit has written goes out as it is read, so that no task's state need be in memory. Spark brings the
rows of a key together, in order; ``grete.spark.moving.fold`` keeps the last.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from grete.execution.timing.reserved_stores import META, OUTBOX, STREAM_TIME, TIMERS
from grete.protocol.partitioner import partition_of
from grete.spark.format.latest_values import columns_of
from grete.spark.format.options import LogSpec
from grete.spark.murmur2 import partitions_of
from grete.state.read.checkpoints.snapshots import segments
from grete.state.write.moving.routes import Route

# ``task`` gets the row, ``source`` had it (a partition of the stage). ``place``: where it was written there, rising.
# A row without a key says that the task emptied the store there; one without a value that it deleted the key.
ROUTED = "task int, store int, key binary, source int, place bigint, value binary"
_TYPES = [pa.int32(), pa.int32(), pa.binary(), pa.int32(), pa.int64(), pa.binary()]
SCHEMA = pa.schema([(field.split()[0], kind) for field, kind in zip(ROUTED.split(", "), _TYPES, strict=True)])
_ROWS, _BYTES = 10_000, 4 << 20  # of one batch, about
EVERYWHERE = -1  # where an entry goes that is for all keys


def routed(where: LogSpec, route: Route) -> Iterator[pa.RecordBatch]:
    """Yield all rows of one task's changelog that count at its snapshot, in the order in which they were written."""
    log = where.open()
    try:
        yield from _together(_rows(route, segment.messages) for segment in segments(log, route.snapshot))
    finally:
        log.close()


def numbers_of(route: Route, partitions: int, stores: Any, keys: Any) -> Any:
    """Return to which of ``partitions`` each entry goes: as its route says of one, of a column at once where it can."""
    found = np.full(len(stores), EVERYWHERE, np.int32)
    for store in np.unique(stores).tolist():
        at = np.flatnonzero(stores == store)
        record_keys = _record_keys(route, store, keys.take(pa.array(at)))
        is_known = record_keys.is_valid().to_numpy(zero_copy_only=False)
        found[at[is_known]] = _placed(route, partitions, record_keys.filter(record_keys.is_valid()))
    return found


def _record_keys(route: Route, store: int, keys: Any) -> Any:
    """Return the record keys of entries of one store, null of those that are for all."""
    if store != TIMERS and store not in route.keys.forms:
        return keys
    return pa.array([route.keys.of(store, key) for key in keys.to_pylist()], pa.large_binary())


def _placed(route: Route, partitions: int, keys: Any) -> Any:
    if route.place is partition_of:
        return partitions_of(keys, partitions).to_numpy()
    return np.array([route.place(key, partitions) for key in keys.to_pylist()], np.int32)


def _together(segments_rows: Iterable[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield batches of a good size, whose places go on from one to the next."""
    held: list[pa.RecordBatch] = []
    rows = size = begin = 0
    for batches in segments_rows:
        for batch in batches:
            places = batch.column("place").to_numpy() + begin
            held.append(batch.set_column(SCHEMA.get_field_index("place"), SCHEMA.field("place"), pa.array(places)))
            begin, rows, size = int(places.max()) + 1, rows + len(batch), size + batch.nbytes
            if rows >= _ROWS or size >= _BYTES:
                yield pa.concat_batches(held)
                held, rows, size = [], 0, 0
    if held:
        yield pa.concat_batches(held)


def _rows(route: Route, messages: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the messages of one commit."""
    known = np.array(sorted(route.stores))
    for message in messages:
        resets, stores, keys, values = columns_of(message)
        if len(emptied := np.intersect1d(resets, known)):
            everywhere = range(route.partition, route.partition + 1) if route.is_whole else range(route.partitions)
            tasks, count = np.tile(np.array(everywhere), len(emptied)), len(everywhere)
            nothing = pa.nulls(len(tasks), pa.binary())
            yield _batch(route, tasks, np.repeat(emptied, count), nothing, np.zeros(len(tasks)), nothing)
        at, tasks = _targets(route, stores, keys)
        ours = np.isin(stores[at], known)
        at, tasks = at[ours], tasks[ours]
        if len(at):
            taken = pa.array(at)
            keys, values = (column.take(taken).cast(pa.binary()) for column in (keys, values))
            yield _batch(route, tasks, stores[at], keys, at + 1, values)


def _targets(route: Route, stores: Any, keys: Any) -> tuple[Any, Any]:
    """Return (numbers of rows, the partitions that they go to): some go to several, some to none."""
    alone = (stores == META) | (stores == OUTBOX)  # one by one: they are few
    many = np.flatnonzero(~alone)
    numbers = np.full(len(many), route.partition, np.int32)
    if route.moves:
        numbers = numbers_of(route, route.partitions, stores[many], keys.take(pa.array(many)))
        everywhere = numbers == EVERYWHERE
        alone[many[everywhere]] = True
        many, numbers = many[~everywhere], numbers[~everywhere]
    found: list[tuple[int, int]] = []
    for row in np.flatnonzero(alone).tolist():
        key, store = keys[row].as_py(), int(stores[row])
        is_time = route.moves and store == META and key == STREAM_TIME  # the fold takes the least of all
        found += [(row, number) for number in (range(route.partitions) if is_time else route.targets(store, key))]
    if not found:
        return many, numbers
    rows, others = (np.array(column) for column in zip(*found, strict=True))
    return np.concatenate([many, rows]), np.concatenate([numbers, others])


def _batch(route: Route, tasks: Any, stores: Any, keys: Any, places: Any, values: Any) -> pa.RecordBatch:
    columns = [
        pa.array(tasks + route.first, pa.int32()),
        pa.array(stores.astype(np.int32)),
        keys,
        pa.repeat(pa.scalar(route.partition, pa.int32()), len(tasks)),
        pa.array(places.astype(np.int64)),
        values,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
