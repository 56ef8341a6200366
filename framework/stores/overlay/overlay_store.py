"""One store of a task as its code sees it, over the write batches of its overlay (A8)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from grete.ports import StateStore, Write
from grete.stores.sorted_view import Item, SortedView

KeyAndValue = tuple[bytes, bytes]
WriteBatch = dict[bytes, bytes | None]  # None = deleted

ENTRY_BYTES = 120  # what a key and a value cost beyond their own bytes: two object headers and a slot of the dict
_NOTHING = bytes(bytearray(b"no entry"))  # told apart by identity, so no stored value can be taken for it


class TaskAccount(Protocol):
    """The bounds that all stores of a task share, and its undo: the Overlay."""

    journal: "list[tuple[OverlayStore, bytes, bytes | None]] | None"
    open_bytes: int
    recount_bytes: int
    cache: "CacheRoom"

    def recount(self) -> None:
        """Count the open write batch exactly. Raises Halted if it has outgrown its bound (A9)."""


class CacheRoom:
    """The room in the read cache of all stores.

    When the recent values fill their half of it they become the old ones, and those go.
    """

    def __init__(self, bytes_max: int, stores: Collection["OverlayStore"]) -> None:
        self._half = bytes_max // 2  # two generations, each at most this
        self._bytes = 0  # of the recent ones
        self._stores = stores

    def make_room(self, size: int) -> bool:
        """Account for a value, or return False if it is too large to keep."""
        if size > self._half:
            return False
        self._bytes += size
        if self._bytes > self._half:
            for store in self._stores:
                store.age_cache()
            self._bytes = size
        return True

    def takes(self, whole: int, size: int) -> bool:
        """Account for a part of what has ``whole`` bytes, or return False if that would not fit."""
        return whole <= self._half and self.make_room(size)

    def drop(self) -> None:
        """Forget what was read."""
        for store in self._stores:
            store.drop_cache()
        self._bytes = 0


class Frozen:
    """A part of the frozen write batch. It shrinks as the state store takes it: to let go of all at once takes long."""

    __slots__ = ("_view", "writes")

    def __init__(self, writes: WriteBatch, view: SortedView | None) -> None:
        """Take over a write batch, and the sorted view of it if there is one."""
        self.writes = writes
        self._view = view

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool) -> Iterator[Item]:
        """Yield (key, value or None) with start <= key < end in key order, or from the last on, as of now."""
        if self._view is None:
            self._view = SortedView(self.writes)
        return self._view.scan(start, end, reverse=reverse)

    def newest(self, keys_max: int, bytes_max: int) -> list[Item]:
        """Return some writes, the last ones first; at least one, then up to about ``bytes_max`` bytes."""
        found, size = [], 0
        for key, value in islice(reversed(self.writes.items()), keys_max):
            found.append((key, value))
            size += len(key) + len(value or b"")
            if size >= bytes_max:
                break
        return found

    def forget_newest(self, count: int) -> None:
        """Forget as many of what ``newest`` has returned: the state store has them."""
        if self._view is not None:
            self._view.copy_scans()
        forget = self.writes.popitem
        for _ in range(count):
            forget()


class OverlayStore:
    """One store as the task sees it: the newest write batch that knows a key answers."""

    __slots__ = ("_base", "_cache", "_cache_old", "_frozen", "_id", "_older", "_open", "_overlay", "_view", "parts")

    def __init__(self, overlay: TaskAccount, base: StateStore, store: int) -> None:
        """Made by the Overlay only."""
        self._overlay = overlay
        self._base = base
        self._id = store
        self._open: WriteBatch = {}
        self._view: SortedView | None = None  # of the open write batch; from its first scan on
        self.parts: list[Frozen] = []  # of the frozen write batch, oldest first; for the Overlay only
        self._frozen: WriteBatch = {}  # the newest of them
        self._older: tuple[WriteBatch, ...] = ()  # the others, newest first: seldom any
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
        for older in self._older:
            if (value := older.get(key, _NOTHING)) is not _NOTHING:
                return value
        value = self._cache.get(key, _NOTHING)
        if value is not _NOTHING:
            return value
        return self._fetch(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None, in the order of ``keys``; one call reads all that is not in memory."""
        batches = self._open, self._frozen, *self._older, self._cache, self._cache_old
        found: WriteBatch = {}
        for key in keys:
            for batch in batches:
                if (value := batch.get(key, _NOTHING)) is not _NOTHING:
                    found[key] = value
                    break
        if unknown := [key for key in dict.fromkeys(keys) if key not in found]:
            for key, value in zip(unknown, self._base.get_many(self._id, unknown), strict=True):
                self._keep(key, value)
                found[key] = value
        return [found[key] for key in keys]

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

    def scan(self, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False) -> Iterator[KeyAndValue]:
        """Return (key, value) with start <= key < end, as of the call, whatever is written meanwhile.

        They are in key order, with ``reverse`` from the last on.
        """
        if self._view is None:
            self._view = SortedView(self._open)
        rows = self._base.scan(self._id, start, end, reverse=reverse)
        for part in self.parts:
            rows = merged(part.scan(start, end, reverse=reverse), rows, reverse=reverse)
        if self._open:
            rows = merged(self._view.scan(start, end, reverse=reverse), rows, reverse=reverse)
        return rows

    def _fetch(self, key: bytes) -> bytes | None:
        value = self._cache_old.get(key, _NOTHING)
        if value is _NOTHING:
            value = self._base.get(self._id, key)
        self._keep(key, value)
        return value

    def _keep(self, key: bytes, value: bytes | None) -> None:
        """Put what was read into the read cache."""
        if self._overlay.cache.make_room(len(key) + (0 if value is None else len(value)) + ENTRY_BYTES):
            self._cache[key] = value

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

    def freeze(self) -> Frozen | None:
        """Put a fresh write batch on top of the open one. Return that, unless it is empty: a part of the frozen one."""
        part = Frozen(self._open, self._view) if self._open else None
        if part is not None:
            self.parts.append(part)
            self._look_at_parts()
        self.drop_open()
        return part

    def freeze_below(self, deletes: WriteBatch) -> None:
        """Add deletes to the frozen write batch that are older than all of its parts."""
        self.parts.insert(0, Frozen(deletes, None))
        self._look_at_parts()

    def drop_open(self) -> None:
        """Forget the open write batch.

        A scan that has begun keeps what it saw, because the dict is left behind, not emptied.
        """
        self._open = {}
        self._view = None  # to keep one for a store that is scanned no more costs more than all else of a put

    def drop_frozen(self) -> None:
        """Forget the frozen write batch."""
        self.parts.clear()
        self._look_at_parts()

    def drop_cache(self) -> None:
        """Forget what was read."""
        self._cache, self._cache_old = {}, {}

    def age_cache(self) -> None:
        """Make the recent part of the read cache the old one; the old one goes."""
        self._cache_old, self._cache = self._cache, {}

    def newest(self, part: Frozen, keys_max: int, bytes_max: int) -> list[Item]:
        """Return some writes of a part as ``Frozen.newest`` does, but each with what the key is at the freeze (A9)."""
        writes = part.newest(keys_max, bytes_max)
        if part is self.parts[-1]:
            return writes
        batches = self._frozen, *self._older
        return [(key, next(batch[key] for batch in batches if key in batch)) for key, _ in writes]

    def settle(self, part: Frozen, writes: list[Item], *, keep: bool) -> None:
        """Let the state store answer for the ``newest`` writes of a part, which it has; ``keep``: in the read cache."""
        if keep:
            self._cache.update(writes)
        else:
            for key, _ in writes:
                self._cache.pop(key, None)  # out of date
                self._cache_old.pop(key, None)
        part.forget_newest(len(writes))
        if not part.writes:
            self.parts.remove(part)
            self._look_at_parts()

    def frozen_items(self) -> Iterator[Write]:
        """Yield (store id, key, value or None) of the frozen write batch in key order."""
        writes: WriteBatch = {}
        for part in self.parts:
            writes |= part.writes
        return ((self._id, key, writes[key]) for key in sorted(writes))

    def is_frozen(self, key: bytes) -> bool:
        """Return whether the key is dirty in the frozen write batch."""
        return key in self._frozen or any(key in older for older in self._older)

    def _look_at_parts(self) -> None:
        batches = [part.writes for part in self.parts]
        self._frozen = batches.pop() if batches else {}
        self._older = tuple(reversed(batches))


def _bytes_of(write_batch: WriteBatch) -> int:
    return (
        len(write_batch) * ENTRY_BYTES + sum(map(len, write_batch)) + sum(map(len, filter(None, write_batch.values())))
    )


def merged(upper: Iterable[Item], lower: Iterator[KeyAndValue], *, reverse: bool) -> Iterator[KeyAndValue]:
    """Yield the live entries when ``upper`` hides ``lower``: both sorted by key, or both from the last on."""
    row = next(lower, None)
    for key, value in upper:
        while row is not None and row[0] != key and (row[0] < key) is not reverse:
            yield row
            row = next(lower, None)
        if row is not None and row[0] == key:
            row = next(lower, None)
        if value is not None:
            yield key, value
    if row is not None:
        yield row
        yield from lower
