"""Windows in event time: what all kinds have in common.

A kind is where its windows lie and how it keeps their values (panes) in a store of the window's name. All else is here:
what is late, when ``on_window`` is called, and the timers that call it.
"""

import struct
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from grete.api.serdes.serde import Serde, functions_of, key_serde, topic_serde
from grete.api.stateful.declaration import ResultLetter, Stateful
from grete.api.stateful.spans import check_spans
from grete.api.store import Store
from grete.api.topics.topic import Errors, Output
from grete.errors import ConfigError, GraphError
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


Emit = Literal["final", "update", "end"] | Every


class WindowStore(Stateful, Generic[K, V]):
    """The base of all kinds of windows: a class attribute of a task, with one value per key and window.

    ``on_window`` gets a window when it closes: once event time (see Timers) has reached its end + ``grace_ms``. With
    ``emit="update"`` it gets early results as well (``final`` is False), after each record, with ``Every(ms)`` less
    often; with ``"end"`` at the window's end, and after each record that comes within ``grace_ms``. A record is late if
    all its windows are closed: ``update`` drops it, counts it in ``late`` and returns False; `grete run` and `grete up`
    show how many there were. If all inputs are idle, windows stay open. What ``on_window`` sends carries the window's
    last ms, end - 1, unless given: so a window in a later stage counts it in the same period. What it sends with an
    early result carries the time of the record, or of event time.

    ``late_to``, an Output of the same task, gets each record in process for which ``update`` returns False: its key,
    value, timestamp and headers. An update in ``on_timer`` and the like has no record, and is only counted.

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
        late_to: Output[Any, Any] | None,
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
        if emit not in ("final", "update", "end") and not (isinstance(emit, Every) and emit.ms >= 1):
            needed = "'final', 'update', 'end' or Every(ms) of 1 ms or more"
            raise ConfigError(f"window {name!r}: emit = {emit!r}: need {needed}")
        super().__init__(name)
        self.sizes: dict[str, int | str] = {**sizes}  # what the job pins of where its windows lie
        self.key = key_serde(key)
        self.value = value
        self.grace_ms = grace_ms
        self.emit = emit
        self.late_to = late_to
        self.errors = errors
        self.panes = self.store()
        self.send_late: Callable[[], None] = lambda: None  # the record in process; set on a running task

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
        if taken := self.take(key, timestamp, change):
            return taken
        self.late += 1
        self.send_late()
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
        at_end = self.emit == "end"
        # Every gives none that the final one follows at once
        found = self.find(start, pane_key, at if at_end else self.time_for(pane_key))
        if found is None:
            return
        end, closes, value = found
        if not at_end or closes - self.grace_ms <= at:  # else its end is later now, and has a timer
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
    def store(self) -> Store[Any, Any]:
        """Return the declaration of the store that keeps the values."""

    @abstractmethod
    def windows_in(self, key: Any, value: Any) -> Iterator[Window[K, V]]:
        """Yield the windows that one entry of the store holds, as a reader of the state sees them."""

    def begin_at(self, _start: int) -> bytes:
        """Return the stored key behind those of all windows that begin before ``_start``; b"": the store is by key."""
        return b""

    @abstractmethod
    def find(self, start: int, key: K, now: int) -> tuple[int, int, V] | None:
        """Return (end, when it closes, value) of a window; None: there is none, or it is closed at ``now``."""


def late_outputs(
    where: str, windows: Iterable[WindowStore[Any, Any]], outputs: Mapping[str, Output[Any, Any]], *, batch: bool
) -> dict[str, str]:
    """Return window → the attribute of the task's output that its late records go to.

    Raises GraphError: it is none of the task's, or the task takes records in a batch.
    """
    found = dict[str, str]()
    for window in windows:
        if window.late_to is None:
            continue
        if batch:
            raise GraphError(
                f"{where}: window {window.name!r} has late_to=, and process_batch takes many records at once: which of "
                "them is late is not known: write process, or send it where update returns False"
            )
        attributes = [attribute for attribute, output in outputs.items() if output is window.late_to]
        if not attributes:
            raise GraphError(
                f"{where}: window {window.name!r}: late_to={window.late_to!r} is no output of this task: declare it in "
                "the class, before the window, as in late = Output(topic), and give that: late_to=late"
            )
        found[window.name] = attributes[0]
    return found


def give_early(store: WindowStore[K, V], window: Window[K, V], timestamp: int, closes: int) -> None:
    """Give ``on_window`` the early result of a window that a record has changed, now or later."""
    if store.emit == "final":
        return
    now, ends = store.time_for(window.key), closes - store.grace_ms
    if store.emit == "update" or window.replaces or (store.emit == "end" and ends <= now):
        store.give(window, None)
    if isinstance(store.emit, Every) and not window.replaces:
        at = (max(timestamp, now) // store.emit.ms + 1) * store.emit.ms
    elif store.emit == "end" and ends > now:
        at = ends
    else:
        return
    if at < closes:
        assert store.schedule is not None
        raw = START.pack(window.start + START_SIGN) + functions_of(store.key)[0](window.key)
        store.schedule(at, EARLY + raw.decode("latin-1"))
