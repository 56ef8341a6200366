"""Stores and timers on one dict: without write batches, and without a queue of the timers that are due next."""

from collections.abc import Iterator

from sortedcontainers import SortedSet

from grete.execution.timing.reserved_stores import TIMERS
from grete.execution.timing.timers import DueTimer

Content = dict[tuple[int, bytes], bytes]
_SIGN = 1 << 63


class PlainStore:
    """A store without write batches."""

    def __init__(self, store: int, content: Content) -> None:
        self._store = store
        self._content = content

    def get(self, key: bytes) -> bytes | None:
        """Return the value or None."""
        return self._content.get((self._store, key))

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value."""
        self._content[self._store, key] = value

    def delete(self, key: bytes) -> None:
        """Delete the key."""
        self._content.pop((self._store, key), None)

    def range(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries between two keys, in key order."""
        of = self._store
        keys = [key for store, key in self._content if store == of and start <= key and (end is None or key < end)]
        keys.sort()
        yield from [(key, self._content[of, key]) for key in keys]


class PlainTimers:
    """Timers in one sorted set: no queue of those that are due next, nothing to reload."""

    def __init__(self, content: Content, owner: str = "") -> None:
        self._content = content
        self._owner = owner
        self.set: SortedSet[DueTimer] = SortedSet()

    def schedule(self, at: int, key: str = "", owner: str | None = None) -> None:
        """Set a timer."""
        owner = self._owner if owner is None else owner
        self.set.add(DueTimer(at, owner, key))
        self._content[TIMERS, _timer_key(at, owner, key)] = b""

    def cancel(self, at: int, key: str = "", owner: str | None = None) -> None:
        """Remove a timer."""
        owner = self._owner if owner is None else owner
        self.set.discard(DueTimer(at, owner, key))
        self._content.pop((TIMERS, _timer_key(at, owner, key)), None)

    def pop(self, now: int) -> DueTimer | None:
        """Remove and return the first timer that is due."""
        if not self.set or (due := self.set[0]).at > now:
            return None
        self.cancel(due.at, due.key, due.owner)
        return due


def _timer_key(at: int, owner: str, key: str) -> bytes:
    """Return the key of a timer in the store of timers."""
    return _start(at) + bytes((len(owner),)) + owner.encode() + key.encode()


def _start(at: int) -> bytes:
    return (at + _SIGN).to_bytes(8, "big")
