"""The timers of one task: durable in a reserved store, in memory a heap of what may be due.

The store is the truth. The heap may hold more (timers cancelled or undone): what is not in the store is passed over.
A timer is in the heap once, however often it is set, and a freeze drops from the heap what is not in the store once
that is most of it: between two freezes the heap grows no further than the open write batch does (A9).
"""

import struct
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from framework.errors import TaskError
from framework.execution.event_time import BEFORE_ALL
from framework.execution.limits import GONE_TIMERS_MIN
from framework.stores.overlay_store import OverlayStore

_AT = struct.Struct(">Q")  # with the sign bit flipped: sorts as the numbers do
_SIGN = 1 << 63  # flipped, the bytes of negative times sort before those of positive ones
NEVER = 1 << 63  # ms: after every INT64


class Due(NamedTuple):
    """A timer to fire. ``owner`` is the name of a window, or empty for the task's own Timers()."""

    at: int
    owner: str
    key: str


class TimerQueue:
    """Schedules, cancels and pops timers. ``now`` is the task's event time, ``due`` the least ``at`` in the heap."""

    def __init__(self, store: OverlayStore) -> None:
        self.now = BEFORE_ALL
        self.due = NEVER
        self._store = store
        self._heap: list[bytes] = []
        self._in_heap: set[bytes] = set()
        self._touched: set[bytes] = set()  # set or cancelled since ``settle``
        self._gone: set[bytes] = set()  # in the heap and, when last settled, not in the store

    def reload(self, now: int) -> None:
        """Start from the restored state; ``now`` is its event time."""
        self.now = now
        self._keep(key for key, _ in self._store.scan())

    def _keep(self, timers: Iterable[bytes]) -> None:
        """Make the heap of these timers."""
        self._heap = list(timers)
        heapify(self._heap)
        self._in_heap = set(self._heap)
        self._touched, self._gone = set(), set()
        self._set_due()

    def schedule(self, owner: str, at: int, key: str = "") -> None:
        """Set a timer; one that is set already stays one. Raises TaskError on a bad time or key."""
        raw = _encode(owner, at, key)
        if self._store.get(raw) is None:
            self._store.put(raw, b"")
            self._touched.add(raw)
            if raw not in self._in_heap:
                self._in_heap.add(raw)
                heappush(self._heap, raw)
                self.due = min(self.due, at)

    def cancel(self, owner: str, at: int, key: str = "") -> None:
        """Remove a timer if it is set. Raises TaskError on a bad time or key."""
        raw = _encode(owner, at, key)
        if self._store.get(raw) is not None:
            self._store.delete(raw)
            self._touched.add(raw)

    def settle(self) -> None:
        """Note which timers of the last records are gone; no record is at work. Behind each batch: it takes as long."""
        if self._touched:
            for raw in self._touched & self._in_heap:
                (self._gone.add if self._store.get(raw) is None else self._gone.discard)(raw)
            self._touched = set()

    def before_freeze(self) -> None:
        """Drop from the heap what is not in the store, if that is most of it; no record is at work."""
        self.settle()
        if len(self._gone) > max(GONE_TIMERS_MIN, len(self._heap) // 2):
            self._keep(self._in_heap - self._gone)

    def pop(self) -> Due | None:
        """Remove and return the first timer that is due, or None."""
        heap = self._heap
        while self.due <= self.now:
            raw = heappop(heap)
            self._in_heap.discard(raw)
            self._gone.discard(raw)
            self._set_due()
            if self._store.get(raw) is not None:
                self._store.delete(raw)
                return _decode(raw)
        return None

    def _set_due(self) -> None:
        self.due = _AT.unpack_from(self._heap[0])[0] - _SIGN if self._heap else NEVER


def _encode(owner: str, at: int, key: str) -> bytes:
    """Return at, length of the owner's name, owner, key: sorted by time, then owner, then key."""
    if type(at) is not int or not -_SIGN <= at < _SIGN:
        raise TaskError(f"timer at {at!r}: need milliseconds since 1970 as an int")
    if not isinstance(key, str):
        raise TaskError(f"timer key {key!r}: need a str")
    name = owner.encode()
    return _AT.pack(at + _SIGN) + bytes((len(name),)) + name + key.encode()


def _decode(raw: bytes) -> Due:
    """Undo ``_encode``."""
    name_end = 9 + raw[8]
    return Due(_AT.unpack_from(raw)[0] - _SIGN, raw[9:name_end].decode(), raw[name_end:].decode())
