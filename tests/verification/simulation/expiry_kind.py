"""The store with ttl_ms that a timed task may have, and the oracle's own: entries in a dict, looked at one by one."""

from collections.abc import Callable, Iterator, Mapping

from grete.execution.timing.reserved_stores import META, STREAM_TIME

FRESH = 50  # store id: what inputs remember has the ids behind these, here or behind those of a join
TTL_MS = 40
_SIGN = 1 << 63


class PlainExpiring:
    """A store whose entries are gone TTL_MS after the record that put them."""

    def __init__(
        self, content: dict[tuple[int, bytes], bytes], now: Callable[[], int], timestamp: Callable[[], int]
    ) -> None:
        self._content, self._now, self._timestamp = content, now, timestamp

    def get(self, key: bytes) -> bytes | None:
        """Return the value or None."""
        stored = self._content.get((FRESH, key))
        return None if stored is None or _expiry(stored) <= self._now() else stored[8:]

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value."""
        self._content[FRESH, key] = (self._timestamp() + TTL_MS + _SIGN).to_bytes(8, "big") + value

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries, in key order."""
        found = [(key, stored) for (store, key), stored in self._content.items() if store == FRESH]
        for key, stored in sorted(found):
            if _expiry(stored) > self._now():
                yield key, stored[8:]


def alive(content: Mapping[tuple[int, bytes], bytes]) -> dict[tuple[int, bytes], bytes]:
    """Return a state without what its own event time has let expire: when that is deleted decides nothing."""
    return {
        place: value for place, value in content.items() if place[0] != FRESH or not is_expired(content, FRESH, value)
    }


def is_expired(content: Mapping[tuple[int, bytes], bytes], store: int, stored: bytes | None) -> bool:
    """Tell whether a stored value has expired at the event time of a state."""
    if store != FRESH or stored is None:
        return False
    now = content.get((META, STREAM_TIME))
    return now is not None and _expiry(stored) <= int.from_bytes(now, "big", signed=True)


def _expiry(stored: bytes) -> int:
    return int.from_bytes(stored[:8], "big") - _SIGN
