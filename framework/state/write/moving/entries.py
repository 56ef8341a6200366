"""The committed entries of a task, and the portions in which they are written into another job."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from grete.errors import FrameworkError
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.ports import Log, LogReader
from grete.state.read.checkpoints.snapshots import contents, live, segments
from grete.state.read.live_entries import event_time_of
from grete.state.write.bulk.bulk_write import abort
from grete.state.write.bulk.bulk_write_attempt import BulkWrite
from grete.state.write.moving.routes import Route
from grete.stores.overlay.expiring_store import horizon

ROWS = 10_000  # written or copied at once


EntryRow = tuple[int, bytes, bytes]  # store id, key, value


@dataclass(frozen=True, slots=True)
class MovedEntries:
    """The entries written, by "stage/store", at ``checkpoint_id`` of the job that has them now."""

    checkpoint_id: int
    entries: Counter[str]


def entries_of(log: LogReader, route: Route) -> Iterator[EntryRow]:
    """Yield all state of one task at a checkpoint, store by store, as stored. One task's state is in memory.

    What has expired is left out: where the event time is earlier, it would be there again.
    """
    stores = contents(segments(log, route.snapshot), frozenset(route.stores))
    least = horizon(event_time_of(stores[META].get(STREAM_TIME, (None, 0))[0]))
    for store, entries in stores.items():
        keys, values, _ = live(entries)
        for key, value in zip(keys, values, strict=True):
            if store not in route.expiring or value >= least:
                yield store, key, value


def chunks(found: Iterator[EntryRow]) -> Iterator[tuple[list[int], list[bytes], list[bytes | None]]]:
    """Yield entries as columns, at most ROWS of them at once."""
    stores: list[int] = []
    keys: list[bytes] = []
    values: list[bytes | None] = []
    for store, key, value in found:
        stores.append(store)
        keys.append(key)
        values.append(value)
        if len(keys) == ROWS:
            yield stores, keys, values
            stores, keys, values = [], [], []
    if keys:
        yield stores, keys, values


def give_up(log: Log, bulk_write: BulkWrite) -> None:
    """Roll back a bulk write; if the log does not take that either, the next bulk write does it."""
    with contextlib.suppress(FrameworkError):
        abort(log, bulk_write)
