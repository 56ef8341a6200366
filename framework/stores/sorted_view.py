"""A dict with a sorted index of its keys whose scans see it as it was when they began."""

import weakref
from collections.abc import Iterator

from sortedcontainers import SortedList

Item = tuple[bytes, bytes | None]  # key, value or None for a deleted key


class SortedView:
    """The sorted keys of ``values``, a dict that its owner changes, telling ``touch`` before each change.

    Scans are lazy: what one has still to yield is copied only if something changes before it ends. So taking the first
    entry of a long queue does not copy the queue.
    """

    __slots__ = ("_keys", "_scans", "values")

    def __init__(self, values: dict[bytes, bytes | None]) -> None:
        """Index the keys that are there."""
        self.values = values
        self._keys = SortedList(values)
        self._scans: list[weakref.ref[_ViewScan]] = []

    def touch(self, key: bytes, *, gone: bool = False) -> None:
        """Note that ``key`` is about to be set (or, with ``gone``, to be taken away)."""
        if self._scans:
            self.copy_scans()
        if gone:
            self._keys.discard(key)
        elif key not in self.values:
            self._keys.add(key)

    def copy_scans(self) -> None:
        """Let the scans that have begun keep what they have still to yield: the values are about to change."""
        for reference in self._scans:
            scan = reference()
            if scan is not None:
                scan.copy_rest()
        self._scans.clear()

    def last(self) -> bytes | None:
        """Return the last key, or None."""
        return self._keys[-1] if self._keys else None

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[Item]:
        """Yield (key, value) with start <= key < end in key order (``reverse``: from the last on), as of now.

        A key that has lost its value is none.
        """
        values, keys = self.values, self._keys.irange(start, end, inclusive=(True, False), reverse=reverse)
        scan = _ViewScan((key, values[key]) for key in keys if key in values)
        self._scans = [reference for reference in self._scans if reference() is not None]
        self._scans.append(weakref.ref(scan))
        return scan


class _ViewScan:
    """One scan: over the live index as long as nothing changes, then over a copy of the rest."""

    __slots__ = ("__weakref__", "_items")

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items

    def copy_rest(self) -> None:
        self._items = iter(list(self._items))

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        return next(self._items)
