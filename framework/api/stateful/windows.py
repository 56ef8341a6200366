"""Windows in event time: what all kinds have in common, and those that are the same for every key: tumbling, hopping.

A kind is where its windows lie and how it keeps their values (panes) in a store of the window's name. All else is here:
what is late, when ``on_window`` is called, and the timers that call it.
"""

import struct
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from grete.api.serdes.serde import Codec, Serde, functions_of, in_each_version, key_serde, topic_serde
from grete.api.stateful.declaration import KeySlice, ResultLetter, Stateful
from grete.api.stateful.spans import check_spans
from grete.api.store import Store
from grete.api.topics.topic import Errors
from grete.errors import ConfigError
from grete.quoting import key_text

K = TypeVar("K")
V = TypeVar("V")

START = struct.Struct(">Q")
SIGN = 1 << 63  # flipped, the bytes of negative numbers sort before those of positive ones
_EARLY = "e"  # begins the key of a timer for an early result


class Window(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """The argument of ``on_window``: the value of one key in one window, start <= timestamp < end, in ms."""

    name: str  # of the declaration
    start: int
    end: int
    key: K
    value: V
    final: bool = True  # False: an early result, which a later one of the same key and start replaces
    replaces: tuple[int, ...] = ()  # starts of sessions that this one has taken in: their early results no longer hold


class Every(msgspec.Struct, frozen=True):
    """``emit=Every(ms)``: early results at multiples of ``ms`` of event time, of windows that have changed since."""

    ms: int


Emit = Literal["final", "update"] | Every


class WindowStore(Stateful, Generic[K, V]):
    """The base of the four kinds of windows: a class attribute of a task, with one value per key and window.

    ``on_window`` gets a window when it closes: once event time (see Timers) has reached its end + ``grace_ms``. With
    ``emit="update"`` it gets early results as well (``final`` is False), after each record, with ``Every(ms)`` less
    often. A record is late if all its windows are closed: ``update`` drops it, counts it in ``late`` and returns False;
    `grete run` and `grete up` show how many there were. If all inputs are idle, windows stay open. What ``on_window``
    sends carries the window's last ms, end - 1, unless given: so a window in a later stage counts it in the same
    period. What it sends with an early result carries the time of the record, or of event time.

    ``errors`` says what becomes of a result if ``on_window`` fails: as for an Input. What it did is undone; the window
    is closed all the same. The early result that a record gives at once fails as part of that record.
    """

    what = "window"
    method = "on_window"
    kind: ClassVar[str]
    panes: Store[Any, Any]  # where the values are

    def __init__(
        self,
        name: str,
        sizes: Mapping[str, int],
        key: Serde[K],
        value: Serde[V],
        grace_ms: int,
        emit: Emit,
        *,
        errors: Errors,
    ) -> None:
        """``sizes``: argument → ms. Raises ConfigError on a size below 1, a negative grace_ms, another ``emit``."""
        check_spans(f"window {name!r}", **sizes, grace_ms=grace_ms)
        if min(sizes.values()) < 1 or grace_ms < 0:
            given = ", ".join(f"{each} = {ms}" for each, ms in {**sizes, "grace_ms": grace_ms}.items())
            needed = ", ".join(f"{each} >= 1" for each in sizes)
            raise ConfigError(f"window {name!r}: {given}: need {needed}, grace_ms >= 0")
        if isinstance(emit, Every):
            check_spans(f"window {name!r}: emit = Every", ms=emit.ms)
        if emit not in ("final", "update") and not (isinstance(emit, Every) and emit.ms >= 1):
            raise ConfigError(f"window {name!r}: emit = {emit!r}: need 'final', 'update' or Every(ms) of 1 ms or more")
        super().__init__(name)
        self.sizes = dict(sizes)
        self.key = key_serde(key)
        self.value = value
        self.grace_ms = grace_ms
        self.emit = emit
        self.errors = errors

    @property
    def held_ms(self) -> int:
        """As of Stateful."""
        return self.grace_ms

    def update(self, key: K, timestamp: int, change: Callable[[V | None], V]) -> bool:
        """Replace the key's value by change(value so far or None) in each open window of ``timestamp``.

        Return False if the record is late. Raises TaskError on a window that is not part of a running task, SerdeError
        on a bad key or value.
        """
        self.check_runs()
        taken = self.take(key, timestamp, change)
        self.late += not taken
        return taken

    @staticmethod
    def key_of_timer(key: str) -> bytes | None:
        """As of Stateful. The end of windows that are the same for every key has one timer."""
        if key.startswith(_EARLY):
            return key[1:].encode("latin-1")[START.size :]
        return key[1:].encode("latin-1") if key else None

    def fire(self, at: int, key: str) -> None:
        """As of Stateful: give what falls due to ``on_window``."""
        if not key.startswith(_EARLY):
            self.close(at, key)
            return
        raw = key[1:].encode("latin-1")
        start = START.unpack_from(raw)[0] - SIGN
        pane_key = functions_of(self.key)[1](raw[8:])
        if (found := self.find(start, pane_key)) is not None:
            end, value = found
            self.give_due(Window(self.name, start, end, pane_key, value, final=False), min(at, end - 1))

    def which(self, result: Window[K, V]) -> str:
        """As of Stateful."""
        return f"window {result.name} of {key_text(result.key)} from {result.start} to {result.end}"

    def letter(self, result: Window[K, V]) -> ResultLetter:
        """As of Stateful."""
        told = {
            "grete.window": result.name,
            "grete.start": str(result.start),
            "grete.end": str(result.end),
            "grete.final": str(result.final).lower(),
            "grete.key_serde": self.key.name,
        }
        key, value = functions_of(topic_serde(self.key))[0](result.key), functions_of(self.value)[0](result.value)
        return key, value, result.end - 1, told

    @abstractmethod
    def take(self, key: K, timestamp: int, change: Callable[[V | None], V]) -> bool:
        """Do the work of ``update``."""

    @abstractmethod
    def close(self, at: int, key: str) -> None:
        """Give each value that is final at ``at`` to ``on_window`` and delete it; ``key``: of a timer of this kind."""

    @abstractmethod
    def find(self, start: int, key: K) -> tuple[int, V] | None:
        """Return the (end, value) of a window; None: there is none, or event time has closed it."""


def give_early(store: WindowStore[K, V], window: Window[K, V], timestamp: int, closes: int) -> None:
    """Give ``on_window`` the early result of a window that a record has changed, now or later."""
    if store.emit == "final":
        return
    if store.emit == "update" or window.replaces:
        store.give(window, None)
        return
    assert isinstance(store.emit, Every) and store.schedule is not None
    at = (max(timestamp, store.time_for(window.key)) // store.emit.ms + 1) * store.emit.ms
    if at < closes:
        raw = START.pack(window.start + SIGN) + functions_of(store.key)[0](window.key)
        store.schedule(at, _EARLY + raw.decode("latin-1"))


@in_each_version
def _pane_serde(key: Serde[K]) -> Serde[tuple[int, K | None]]:
    """Return the serde of (window start, key): a window's keys are one prefix, which is what key None gives."""
    encode_key, decode_key = functions_of(key)

    def encode(pane: tuple[int, K | None]) -> bytes:
        start = START.pack(pane[0] + SIGN)
        return start if pane[1] is None else start + encode_key(pane[1])

    def decode(data: bytes) -> tuple[int, K | None]:
        return START.unpack_from(data)[0] - SIGN, decode_key(data[8:])

    return Codec(f"window({key.name})", (encode, decode), schema=key)


class HoppingWindow(WindowStore[K, V]):
    """Windows of ``size_ms`` that begin every ``advance_ms``, from 1970 on: a record is in several. See WindowStore.

    A record changes the value of each of its windows, about size_ms / advance_ms: choose an advance that is not tiny.
    """

    kind = "hopping"
    key_at: ClassVar[KeySlice] = START.size, None

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
        errors: Errors = "fail",
    ) -> None:
        """Declare the window; it is also a store of this name. Raises ConfigError on sizes that make no windows."""
        super().__init__(
            name, {"size_ms": size_ms, "advance_ms": advance_ms}, key, value, grace_ms, emit, errors=errors
        )
        if advance_ms > size_ms:
            raise ConfigError(
                f"window {name!r}: advance_ms = {advance_ms} is more than size_ms = {size_ms}: records between two "
                "windows would be in none: need advance_ms <= size_ms"
            )
        self._lay(size_ms, advance_ms)

    def _lay(self, size_ms: int, advance_ms: int) -> None:
        self.size_ms = size_ms
        self.advance_ms = advance_ms
        self.panes: Store[tuple[int, K | None], V] = Store(self.name, _pane_serde(self.key), self.value)

    def take(self, key: K, timestamp: int, change: Callable[[V | None], V]) -> bool:
        """Change the pane of each window of the timestamp that is open, by start."""
        size, advance, panes = self.size_ms, self.advance_ms, self.panes
        now, taken = self.time_for(key), False
        for start in range(((timestamp - size) // advance + 1) * advance, timestamp + 1, advance):
            closes = start + size + self.grace_ms
            if closes <= now:
                continue
            taken, pane = True, (start, key)
            before = panes.get(pane)
            if before is None:
                assert self.schedule is not None
                self.schedule(closes, "")
            value = change(before)
            panes.put(pane, value)
            if self.emit != "final":
                give_early(self, Window(self.name, start, start + size, key, value, final=False), timestamp, closes)
        return taken

    def close(self, at: int, key: str) -> None:
        """Give the values of the one window that closes at ``at``, by key."""
        assert not key
        end = at - self.grace_ms
        start = end - self.size_ms
        for pane, value in self.panes.prefix((start, None)):
            window: Window[K, V] = Window(self.name, start, end, pane[1], value)  # type: ignore[arg-type]  # only a prefix has no key
            self.give_due(window, end - 1)
            self.panes.delete(pane)

    def find(self, start: int, key: K) -> tuple[int, V] | None:
        """As of WindowStore."""
        end = start + self.size_ms
        value = None if end + self.grace_ms <= self.time_for(key) else self.panes.get((start, key))
        return None if value is None else (end, value)


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
        errors: Errors = "fail",
    ) -> None:
        """Declare the window; it is also a store of this name. Raises ConfigError on a bad size_ms or grace_ms."""
        WindowStore.__init__(self, name, {"size_ms": size_ms}, key, value, grace_ms, emit, errors=errors)
        self._lay(size_ms, size_ms)
