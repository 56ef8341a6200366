"""Windows that are the same for every key: the base of all of them, and those of one size, tumbling and hopping."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar

from grete.api.serdes.serde import Codec, Serde, functions_of, in_each_version
from grete.api.stateful.declaration import KeySlice
from grete.api.stateful.windows import START, START_SIGN, Emit, Window, WindowStore, give_early
from grete.api.store import Store
from grete.api.topics.topic import Errors, Output
from grete.errors import ConfigError

K = TypeVar("K")
V = TypeVar("V")


@in_each_version
def _pane_serde(key: Serde[K]) -> Serde[tuple[int, K | None]]:
    """Return the serde of (window start, key): a window's keys are one prefix, which is what key None gives."""
    encode_key, decode_key = functions_of(key)

    def encode(pane: tuple[int, K | None]) -> bytes:
        start = START.pack(pane[0] + START_SIGN)
        return start if pane[1] is None else start + encode_key(pane[1])

    def decode(data: bytes) -> tuple[int, K | None]:
        return START.unpack_from(data)[0] - START_SIGN, decode_key(data[8:])

    return Codec(f"window({key.name})", (encode, decode), schema=key)


class CommonWindows(WindowStore[K, V]):
    """The base of windows that are the same for every key: a pane for each start and key, a timer for each start."""

    key_at: ClassVar[KeySlice] = START.size, None
    panes: Store[tuple[int, K | None], V]

    def store(self) -> Store[tuple[int, K | None], V]:
        """As of WindowStore."""
        return Store(self.name, _pane_serde(self.key), self.value)

    def take(self, key: K, timestamp: int, change: Callable[[V | None], V]) -> bool:
        """Change the pane of each window of the timestamp that is open, by start."""
        panes = self.panes
        now, taken = self.time_for(key), False
        for start in self.starts(key, timestamp):
            end = self.end_of(key, start)
            closes = end + self.grace_ms
            if closes <= now:
                continue
            taken, pane = True, (start, key)
            before = panes.get(pane)
            if before is None:
                self.set_timers(start, end, now)
            value = change(before)
            panes.put(pane, value)
            if self.emit == "final" or (self.emit == "end" and end > now):
                continue
            give_early(self, Window(self.name, start, end, key, value, final=False), timestamp, closes)
        return taken

    def set_timers(self, start: int, end: int, now: int) -> None:
        """Set the timers of a window for all keys: for when it closes and, with ``emit="end"``, for its end."""
        assert self.schedule is not None
        self.schedule(end + self.grace_ms, self.timer_of(start))
        if self.emit == "end" and end > now:
            self.schedule(end, self.timer_of(start))

    def give_one(self, pane: tuple[int, K | None], end: int, value: V, *, final: bool) -> None:
        """Give the value of a pane; one that is final is deleted."""
        window: Window[K, V] = Window(self.name, pane[0], end, pane[1], value, final)  # type: ignore[arg-type]  # only a prefix has no key
        self.give_due(window, end - 1)
        if final:
            self.panes.delete(pane)

    def find(self, start: int, key: K, now: int) -> tuple[int, int, V] | None:
        """As of WindowStore."""
        end = self.end_of(key, start)
        closes = end + self.grace_ms
        value = None if closes <= now else self.panes.get((start, key))
        return None if value is None else (end, closes, value)

    def windows_in(self, key: tuple[int, K], value: V) -> Iterator[Window[K, V]]:
        """As of WindowStore."""
        yield Window(self.name, key[0], self.end_of(key[1], key[0]), key[1], value)

    def begin_at(self, start: int) -> bytes:
        """As of WindowStore."""
        return START.pack(min(max(start + START_SIGN, 0), 2 * START_SIGN - 1))

    @abstractmethod
    def starts(self, key: K, timestamp: int) -> Iterable[int]:
        """Return the starts of the windows of a key and timestamp, in their order."""

    @abstractmethod
    def end_of(self, key: K, start: int) -> int:
        """Return the end of the window of a key that begins at ``start``."""

    @abstractmethod
    def timer_of(self, start: int) -> str:
        """Return the key of the timer that closes a window."""


class HoppingWindow(CommonWindows[K, V]):
    """Windows of ``size_ms`` that begin every ``advance_ms``, from 1970 on: a record is in several. See WindowStore.

    A record changes the value of each of its windows, about size_ms / advance_ms: choose an advance that is not tiny.
    """

    kind = "hopping"

    def __init__(
        self,
        name: str,
        size_ms: int,
        advance_ms: int,
        key: Serde[K],
        value: Serde[V],
        grace_ms: int = 0,
        emit: Emit = "final",
        *,
        late_to: Output[Any, Any] | None = None,
        errors: Errors = "fail",
    ) -> None:
        """Declare the window; it is also a store of this name. Raises ConfigError on sizes that make no windows."""
        sizes = {"size_ms": size_ms, "advance_ms": advance_ms}
        super().__init__(name, sizes, key, value, grace_ms, emit, late_to=late_to, errors=errors)
        if advance_ms > size_ms:
            raise ConfigError(
                f"window {name!r}: advance_ms = {advance_ms} is more than size_ms = {size_ms}: records between two "
                "windows would be in none: need advance_ms <= size_ms"
            )
        self.size_ms, self.advance_ms = size_ms, advance_ms

    def starts(self, key: K, timestamp: int) -> Iterable[int]:
        """As of CommonWindows."""
        advance = self.advance_ms
        return range(((timestamp - self.size_ms) // advance + 1) * advance, timestamp + 1, advance)

    def end_of(self, key: K, start: int) -> int:
        """As of CommonWindows."""
        return start + self.size_ms

    def timer_of(self, start: int) -> str:
        """Return an empty key: the time of a timer tells which window it closes."""
        return ""

    def close(self, at: int, key: str) -> None:
        """Give the values of the one window that closes at ``at``, and with ``emit="end"`` of the one that ends."""
        assert not key
        ends = [(at - self.grace_ms, True)]
        if self.emit == "end" and self.grace_ms:
            ends.append((at, False))
        for end, final in ends:
            for pane, value in self.panes.prefix((end - self.size_ms, None)):
                self.give_one(pane, end, value, final=final)


class TumblingWindow(HoppingWindow[K, V]):
    """Windows of ``size_ms``, one after another from 1970 on: a record is in one. See WindowStore."""

    kind = "tumbling"

    def __init__(
        self,
        name: str,
        size_ms: int,
        key: Serde[K],
        value: Serde[V],
        grace_ms: int = 0,
        emit: Emit = "final",
        *,
        late_to: Output[Any, Any] | None = None,
        errors: Errors = "fail",
    ) -> None:
        """Declare the window; it is also a store of this name. Raises ConfigError on a bad size_ms or grace_ms."""
        sizes = {"size_ms": size_ms}
        CommonWindows.__init__(self, name, sizes, key, value, grace_ms, emit, late_to=late_to, errors=errors)
        self.size_ms = self.advance_ms = size_ms
