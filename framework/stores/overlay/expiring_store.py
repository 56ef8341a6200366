"""A store whose entries expire: a stored value begins with the event time from which on it is none (0052).

Nothing is set or looked up for each key: reads leave out what event time has passed, and the changelog's rewrite, which
passes all keys in turn, deletes it (grete.stores.overlay.rewrite_slice).
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

from grete.errors import TaskError
from grete.stores.overlay.overlay_store import OverlayStore

EXPIRY_BYTES = 8  # before each value
BEFORE_ALL, AFTER_ALL = -(1 << 63), (1 << 63) - 1  # ms: what has no event time yet; what never expires
_AT = struct.Struct(">Q")
_SIGN = 1 << 63  # flipped, so that the bytes sort as the times do: readers compare whole columns of them


def horizon(now: int) -> bytes:
    """Return bytes that a stored value is less than if it has expired at event time ``now`` (ms)."""
    return _AT.pack(min(now + 1, AFTER_ALL) + _SIGN)


def unexpired(rows: Iterable[tuple[bytes, bytes]], now: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value without its expiry) of the stored entries that have not expired at event time ``now``."""
    least = horizon(now)
    return ((key, stored[EXPIRY_BYTES:]) for key, stored in rows if stored >= least)


def expiry_of(stored: bytes) -> int:
    """Return the event time, in ms, from which on a stored entry is none."""
    at: int = _AT.unpack_from(stored)[0]
    return at - _SIGN


class ExpiringStore:
    """An OverlayStore as the code of a task sees it that gives its entries ``ttl_ms`` to live.

    An entry's time is ``timestamp()``, that of the record or timer at work, which does not depend on how far other
    inputs are. It is gone once event time, ``now()``, is at that + ttl_ms.
    """

    def __init__(
        self,
        name: str,
        store: OverlayStore,
        ttl_ms: int,
        now: Callable[[], int],
        timestamp: Callable[[], int],
        floor: Callable[[bytes], int] = lambda _: BEFORE_ALL,
    ) -> None:
        """``floor``: how far event time has been for a key in another task (0079)."""
        self._floor = floor
        self._name, self._store, self._ttl_ms = name, store, ttl_ms
        self._now, self._timestamp = now, timestamp

    def get(self, key: bytes) -> bytes | None:
        """Return the value or None."""
        stored = self._store.get(key)
        return None if stored is None or stored < horizon(self._now()) else stored[EXPIRY_BYTES:]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None, in the order of ``keys``."""
        least = horizon(self._now())
        found = self._store.get_many(keys)
        return [None if stored is None or stored < least else stored[EXPIRY_BYTES:] for stored in found]

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value. Raises Halted as an OverlayStore does, TaskError before there is any event time."""
        timestamp = self._timestamp()
        if timestamp == BEFORE_ALL:
            raise TaskError(
                f"store {self._name}: its entries expire ttl_ms = {self._ttl_ms} after the record that puts them, and "
                "before the first record there is no event time: put this entry in process"
            )
        expires = min(timestamp + self._ttl_ms, AFTER_ALL)
        if expires > self._floor(key):
            self._store.put(key, _AT.pack(expires + _SIGN) + value)
        elif self._store.get(key) is not None:  # readers outside go by the event time of the task, which is before that
            self._store.delete(key)

    def delete(self, key: bytes) -> None:
        """Delete the key."""
        self._store.delete(key)

    def scan(
        self, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return (key, value) with start <= key < end, as of the call, in key order or from the last on."""
        return unexpired(self._store.scan(start, end, reverse=reverse), self._now())
