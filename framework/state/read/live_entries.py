"""The committed entries of one store as its task's code would see them: those that have expired are none (0052)."""

from collections.abc import Iterable, Iterator
from typing import Any

from grete.api.store import Store
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.ports import LogReader
from grete.state.read.checkpoints.snapshots import Snapshot, contents, live, segments
from grete.stores.overlay.expiring_store import BEFORE_ALL, unexpired


def rows_of(log: LogReader, snapshot: Snapshot, store: Store[Any, Any], store_id: int) -> Iterator[tuple[bytes, bytes]]:
    """Return (key, value) of one store of one task, which are in memory, as its code would see them there."""
    stores = contents(segments(log, snapshot), frozenset({store_id, META}))
    keys, values, _ = live(stores[store_id])
    return unexpired_of(store, zip(keys, values, strict=True), stores[META].get(STREAM_TIME, (None, 0))[0])


def stored_of(log: LogReader, snapshot: Snapshot, store_id: int) -> Iterator[tuple[bytes, bytes]]:
    """Return (key, value) of one store of one task, which are in memory, as they are stored."""
    keys, values, _ = live(contents(segments(log, snapshot), frozenset({store_id}))[store_id])
    return zip(keys, values, strict=True)


def unexpired_of(
    store: Store[Any, Any], rows: Iterable[tuple[bytes, bytes]], stream_time: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the stored entries of a store as (key, value): with ``ttl_ms`` only what is alive at a saved event time."""
    return iter(rows) if store.ttl_ms is None else unexpired(rows, event_time_of(stream_time))


def event_time_of(stream_time: bytes | None) -> int:
    """Return the event time in ms that a task has saved, None: it has saved none."""
    return BEFORE_ALL if stream_time is None else int.from_bytes(stream_time, "big", signed=True)
