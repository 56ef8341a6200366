"""One store of a task as its code sees it, over the write batches of its overlay (A8)."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import Protocol

from framework.ports import StateStore, Write
from framework.stores.sorted_view import Item, SortedView

Row = tuple[bytes, bytes]
WriteBatch = dict[bytes, bytes | None]  # None = deleted

ENTRY_BYTES = 120  # what a key and a value cost beyond their own bytes: two object headers and a slot of the dict
_NOTHING = bytes(bytearray(b"no entry"))  # told apart by identity, so no stored value can be taken for it


class Account(Protocol):
    """The bounds that all stores of a task share, and its undo: the Overlay."""

    journal: "list[tuple[OverlayStore, bytes, bytes | None]] | None"
    open_bytes: int
    recount_bytes: int

    def recount(self) -> None:
        """Count the open write batch exactly. Raises Halted if it has outgrown its bound (A9)."""
        ...

    def make_room(self, size: int) -> bool:
        """Account for a clean read, or return False if it is too large to keep."""
        ...


class OverlayStore:
    """One store as the task sees it: the newest write batch that knows a key answers."""

    __slots__ = ("_base", "_cache", "_cache_old", "_frozen", "_frozen_keys", "_id", "_open", "_overlay", "_view")

    def __init__(self, overlay: Account, base: StateStore, store: int) -> None:
        """Made by the Overlay only."""
        self._overlay = overlay
        self._base = base
        self._id = store
        self._open: WriteBatch = {}
        self._view: SortedView | None = None  # of the open write batch; from the first scan on
        self._frozen: WriteBatch = {}
        self._frozen_keys: list[bytes] | None = None  # sorted; made when first asked for
        self._cache: WriteBatch = {}
        self._cache_old: WriteBatch = {}

    def get(self, key: bytes) -> bytes | None:
        """Return the value or None."""
        value = self._open.get(key, _NOTHING)
        if value is not _NOTHING:
            return value
        value = self._frozen.get(key, _NOTHING)
        if value is not _NOTHING:
            return value
        value = self._cache.get(key, _NOTHING)
        if value is not _NOTHING:
            return value
        return self._fetch(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value. Raises Halted when the open write batch has outgrown its bound (A9)."""
        overlay = self._overlay
        if overlay.journal is not None:
            overlay.journal.append((self, key, self._open.get(key, _NOTHING)))
        if self._view is not None:
            self._view.touch(key)
        self._open[key] = value
        overlay.open_bytes += len(key) + len(value) + ENTRY_BYTES
        if overlay.open_bytes > overlay.recount_bytes:
            overlay.recount()

    def delete(self, key: bytes) -> None:
        """Delete the key; nothing happens if there is none. Raises Halted as ``put`` does."""
        overlay = self._overlay
        if overlay.journal is not None:
            overlay.journal.append((self, key, self._open.get(key, _NOTHING)))
        if self._view is not None:
            self._view.touch(key)
        self._open[key] = None
        overlay.open_bytes += len(key) + ENTRY_BYTES
        if overlay.open_bytes > overlay.recount_bytes:
            overlay.recount()

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        """Return (key, value) with start <= key < end in key order, as of the call, whatever is written meanwhile."""
        if self._view is None:
            self._view = SortedView(self._open)
        rows = self._base.scan(self._id, start, end)
        if self._frozen:
            rows = _merge(self._scan_frozen(start, end), rows)
        if self._open:
            rows = _merge(self._view.scan(start, end), rows)
        return rows

    def _fetch(self, key: bytes) -> bytes | None:
        value = self._cache_old.get(key, _NOTHING)
        if value is _NOTHING:
            value = self._base.get(self._id, key)
        if self._overlay.make_room(len(key) + (0 if value is None else len(value)) + ENTRY_BYTES):
            self._cache[key] = value
        return value

    def _scan_frozen(self, start: bytes, end: bytes | None) -> Iterator[Item]:
        frozen, keys = self._frozen, self.frozen_keys()
        stop = len(keys) if end is None else bisect_left(keys, end)
        return ((key, frozen[key]) for key in map(keys.__getitem__, range(bisect_left(keys, start), stop)))

    def frozen_keys(self) -> list[bytes]:
        """Return the keys that are dirty in the frozen write batch, sorted. For the Overlay."""
        if self._frozen_keys is None:
            self._frozen_keys = sorted(self._frozen)
        return self._frozen_keys

    # --- For the Overlay only ---

    def restore(self, key: bytes, value: bytes | None) -> None:
        """Take one write back: ``value`` is what the open write batch held before, or the sentinel for nothing."""
        gone = value is _NOTHING
        if self._view is not None:
            self._view.touch(key, gone=gone)
        if gone:
            self._open.pop(key, None)
        else:
            self._open[key] = value

    def open_size(self) -> tuple[int, int]:
        """Return (keys, exact bytes) of the open write batch."""
        return len(self._open), _bytes_of(self._open)

    def frozen_size(self) -> tuple[int, int]:
        """Return (keys, exact bytes) of the frozen write batch."""
        return len(self._frozen), _bytes_of(self._frozen)

    def freeze(self) -> None:
        """Put a fresh write batch on top of the open one."""
        self._frozen, self._frozen_keys = self._open, None if self._view is None else self._view.keys()
        self.drop_open()

    def drop_open(self) -> None:
        """Forget the open write batch.

        A scan that has begun keeps what it saw, because the dict is left behind, not emptied.
        """
        self._open = {}
        if self._view is not None:
            self._view = SortedView(self._open)

    def drop_frozen(self) -> None:
        """Forget the frozen write batch."""
        self._frozen, self._frozen_keys = {}, None

    def drop_cache(self) -> None:
        """Forget what was read."""
        self._cache, self._cache_old = {}, {}

    def age_cache(self) -> None:
        """Make the recent part of the read cache the old one; the old one goes."""
        self._cache_old, self._cache = self._cache, {}

    def frozen_to_cache(self, part: float) -> None:
        """Move the frozen write batch, now in the state store, to the read cache: all of it, or only a ``part`` < 1."""
        kept = self._frozen if part >= 1 else islice(self._frozen.items(), int(part * len(self._frozen)))
        self._cache.update(kept)  # a copy: a scan may still be reading the frozen dict
        self.drop_frozen()

    def frozen_items(self) -> Iterator[Write]:
        """Yield (store id, key, value or None) of the frozen write batch in key order."""
        keys = self.frozen_keys()
        return zip(repeat(self._id), keys, map(self._frozen.__getitem__, keys))

    def is_frozen(self, key: bytes) -> bool:
        """Return whether the key is dirty in the frozen write batch."""
        return key in self._frozen


def _bytes_of(write_batch: WriteBatch) -> int:
    return (
        len(write_batch) * ENTRY_BYTES + sum(map(len, write_batch)) + sum(map(len, filter(None, write_batch.values())))
    )


def _merge(upper: Iterable[Item], lower: Iterator[Row]) -> Iterator[Row]:
    """Yield what is alive when ``upper`` hides ``lower``: both sorted by key."""
    row = next(lower, None)
    for key, value in upper:
        while row is not None and row[0] < key:
            yield row
            row = next(lower, None)
        if row is not None and row[0] == key:
            row = next(lower, None)
        if value is not None:
            yield key, value
    if row is not None:
        yield row
        yield from lower
