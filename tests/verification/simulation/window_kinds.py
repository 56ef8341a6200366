"""The windows that a timed task may have, by name, and how the oracle holds them.

Tumbling and hopping windows the oracle works out by itself. Of the others it binds the declaration to its own dict,
timers and time: tests/windows says which records are in which window, and here is what a crash or a rollback makes of
them.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol
from zlib import crc32

from grete.api.serdes.serde import bytes_serde, functions_of
from grete.api.stateful.common_windows import HoppingWindow
from grete.api.stateful.common_windows import TumblingWindow as Tumbling
from grete.api.stateful.key_windows import KeyWindows, SessionWindow, SlidingWindow
from grete.api.stateful.windows import Every, Window, WindowStore
from grete.api.store import Store
from grete.execution.task_code.binding import bound

NAME = "panes"
TUMBLING = "tumbling"
_GRACE_MS = 5  # less than records are out of order: some are late


def _merged(earlier: bytes, later: bytes) -> bytes:
    return b"%d" % crc32(later, int(earlier))


WINDOWS: dict[str, WindowStore[bytes, bytes]] = {
    TUMBLING: Tumbling(NAME, 16, bytes_serde, bytes_serde),
    "hopping": HoppingWindow(NAME, 16, 6, bytes_serde, bytes_serde, _GRACE_MS, emit="update"),
    "session": SessionWindow(NAME, 7, bytes_serde, bytes_serde, _merged, emit=Every(10)),
    "session, told at once": SessionWindow(NAME, 20, bytes_serde, bytes_serde, _merged, _GRACE_MS, emit="update"),
    "sliding": SlidingWindow(NAME, 12, bytes_serde, bytes_serde, _GRACE_MS, emit=Every(10)),
}


class PlainRows(Protocol):
    """A store of the oracle."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def range(self, start: bytes = ..., end: bytes | None = ...) -> Iterator[tuple[bytes, bytes]]: ...


Schedule = Callable[[int, str], None]
Give = Callable[[Window[bytes, bytes], int | None], None]


class PlainWindow:
    """A tumbling or hopping window: its values are in a store, by start and key."""

    def __init__(
        self,
        declared: HoppingWindow[bytes, bytes],
        rows: PlainRows,
        schedule: Schedule,
        now: Callable[[], int],
        give: Give,
    ) -> None:
        self._size, self._advance, self._grace = declared.size_ms, declared.advance_ms, declared.grace_ms
        self._told = declared.emit == "update"
        self._rows, self._schedule, self._now, self._give = rows, schedule, now, give

    def update(self, key: bytes, timestamp: int, change: Callable[[bytes | None], bytes]) -> bool:
        """Replace the key's value in each window of a timestamp that is open; False if there is none."""
        first = timestamp - timestamp % self._advance
        starts = [s for s in range(first, timestamp - self._size, -self._advance) if self._closes(s) > self._now()]
        for start in sorted(starts):
            self._schedule(self._closes(start), "")
            place = _start(start) + key
            value = change(self._rows.get(place))
            self._rows.put(place, value)
            if self._told:
                self._give(Window(NAME, start, start + self._size, key, value, final=False), None)
        return bool(starts)

    def fire(self, at: int, key: str) -> None:
        """Hand out and forget what the window that closes here holds, in the order of the keys."""
        assert not key
        end = at - self._grace
        start = end - self._size
        for place, value in list(self._rows.range(_start(start), _start(start + 1))):
            self._give(Window(NAME, start, end, place[8:], value), end - 1)
            self._rows.delete(place)

    def _closes(self, start: int) -> int:
        return start + self._size + self._grace


class _Panes:
    """A store of the oracle under the serdes of a declaration."""

    def __init__(self, declared: Store[Any, Any], rows: PlainRows) -> None:
        self._rows, self._key = rows, functions_of(declared.key)[0]
        self._encode, self._decode = functions_of(declared.value)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value, or ``default``."""
        raw = self._rows.get(self._key(key))
        return default if raw is None else self._decode(raw)

    def put(self, key: Any, value: Any) -> None:
        """Set the value."""
        self._rows.put(self._key(key), self._encode(value))

    def delete(self, key: Any) -> None:
        """Delete the key."""
        self._rows.delete(self._key(key))


def held_plainly(
    name: str, rows: PlainRows, schedule: Schedule, now: Callable[[], int], give: Give
) -> "PlainWindow | KeyWindows[bytes, bytes]":
    """Return a window of the oracle. ``give``: as of a running task's window, with a timer or not."""
    declared = WINDOWS[name]
    if isinstance(declared, HoppingWindow):
        return PlainWindow(declared, rows, schedule, now, give)
    assert isinstance(declared, KeyWindows)
    panes = _Panes(declared.panes, rows)
    return bound(declared, panes=panes, schedule=schedule, time_for=lambda _: now(), give=give, give_due=give, late=0)


def _start(start: int) -> bytes:
    return (start + (1 << 63)).to_bytes(8, "big")
