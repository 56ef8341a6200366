"""Sizes of a task's stores, as stored: expired entries count until they are deleted."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from grete.api.store import Store
from grete.stores.overlay.expiring_store import expiry_of


class StoreSize(NamedTuple):
    """One store of one task. ``size_bytes``: of keys and values. ``oldest_ms``: event time, of a store with ttl_ms."""

    task: str
    store: str
    entries: int
    size_bytes: int
    oldest_ms: int | None


def measured(task: str, store: Store[Any, Any], rows: Iterable[tuple[bytes, bytes]]) -> StoreSize:
    """Return the size of these stored entries, which are looked at one by one."""
    entries = size = 0
    first: int | None = None
    for key, stored in rows:
        entries += 1
        size += len(key) + len(stored)
        if store.ttl_ms is not None:
            at = expiry_of(stored) - store.ttl_ms
            first = at if first is None else min(first, at)
    return StoreSize(task, store.name, entries, size, first)
