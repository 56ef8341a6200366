"""Windows in event time: what all kinds have in common.

A kind is where its windows lie and how it keeps their values (panes) in a store of the window's name. All else is here:
what is late, when ``on_window`` is called, and the timers that call it.
"""

import struct
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from grete.api.serdes.serde import Serde, functions_of, key_serde, topic_serde
from grete.api.stateful.declaration import ResultLetter, Stateful
from grete.api.stateful.spans import check_spans
from grete.api.store import Store
from grete.api.topics.topic import Errors
from grete.errors import ConfigError
from grete.quoting import key_text

K = TypeVar("K")
V = TypeVar("V")

START = struct.Struct(">Q")
START_SIGN = 1 << 63  # flipped, the bytes of negative numbers sort before those of positive ones
EARLY = "e"  # begins the key of a timer for an early result


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
    """The base of all kinds of windows: a class attribute of a task, with one value per key and window.

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
        if min(sizes.values(), default=1) < 1 or grace_ms < 0:
            given = ", ".join(f"{each} = {ms}" for each, ms in {**sizes, "grace_ms": grace_ms}.items())
            needed = ", ".join([*(f"{each} >= 1" for each in sizes), "grace_ms >= 0"])
            raise ConfigError(f"window {name!r}: {given}: need {needed}")
        if isinstance(emit, Every):
            check_spans(f"window {name!r}: emit = Every", ms=emit.ms)
        if emit not in ("final", "update") and not (isinstance(emit, Every) and emit.ms >= 1):
            raise ConfigError(f"window {name!r}: emit = {emit!r}: need 'final', 'update' or Every(ms) of 1 ms or more")
        super().__init__(name)
        self.sizes: dict[str, int | str] = {**sizes}  # what the job pins of where its windows lie
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
        if key.startswith(EARLY):
            return key[1:].encode("latin-1")[START.size :]
        return key[1:].encode("latin-1") if key else None

    def fire(self, at: int, key: str) -> None:
        """As of Stateful: give what falls due to ``on_window``."""
        if not key.startswith(EARLY):
            self.close(at, key)
            return
        raw = key[1:].encode("latin-1")
        start = START.unpack_from(raw)[0] - START_SIGN
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
        raw = START.pack(window.start + START_SIGN) + functions_of(store.key)[0](window.key)
        store.schedule(at, EARLY + raw.decode("latin-1"))
