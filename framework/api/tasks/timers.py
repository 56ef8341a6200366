"""Durable timers, in event time or by the wall clock."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal

import msgspec

from grete.api.serdes.serde import Serde, decode_error, encode_error, functions_of, key_serde, refuse_no_serde, utf8
from grete.api.topics.topic import Errors
from grete.errors import ConfigError, TaskError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=str)
else:
    from typing import TypeVar

    K = TypeVar("K")

Clock = Literal["event", "wall"]
CLOCKS: tuple[Clock, ...] = ("event", "wall")


class Timer(msgspec.Struct, Generic[K], frozen=True, gc=False):
    """The argument of ``on_timer``: its due time (ms), the key it was set with, and its clock."""

    at: int
    key: K
    clock: Clock = "event"


class Timers(Generic[K]):
    """A class attribute of a task: timers that are part of its state, and survive and roll back with it.

    A task has at most one of each clock. ``clock="event"``: the task's event time, the minimum over its inputs, and
    over the producers of each stream, of the timestamps that they have reached (docs/explanation/event-time.md). A
    timer fires once, after the record (or batch, or news of a producer's time) with which event time reaches ``at``, in
    the order of (at, key). An overdue timer fires after the current record; a row of 10,000 that set one another for
    times that have fired would never end, and is refused. What ``on_timer`` sends carries ``at`` unless a timestamp is
    given. An input without records holds time back for the setting event_time_idle_ms; if all are without, nothing
    fires.

    ``clock="wall"``: the clock on the wall, whether records come or not. A timer fires once, between two records, as
    soon as that clock has reached ``at`` and the task runs. What ``on_timer`` sends carries ``at``, or the task's event
    time if that is later.

    ``errors`` says what becomes of a timer if ``on_timer`` fails, as for an Input; what it did is undone. ``key``: the
    serde of the timers' keys, which are text unless given; with a Key they move with their first part.
    """

    def __init__(
        self,
        errors: Errors = "fail",
        *,
        clock: Clock = "event",
        key: Serde[K] = utf8,  # type: ignore[assignment]  # K is str then
    ) -> None:
        """Declare the timers. Raises ConfigError for another clock."""
        refuse_no_serde(key, "the key of Timers()")
        if clock not in CLOCKS:
            raise ConfigError(f"Timers(clock={clock!r}): need one of {', '.join(map(repr, CLOCKS))}")
        self.errors = errors
        self.clock: Clock = clock
        self.key: Serde[Any] = key_serde(key)

    def schedule(self, at: int, key: K = "") -> None:  # type: ignore[assignment]  # for keys that are text
        """Set a timer for ``at`` (ms since 1970). The same (at, key) twice is one timer. Raises TaskError."""
        raise self._unbound()

    def cancel(self, at: int, key: K = "") -> None:  # type: ignore[assignment]  # for keys that are text
        """Remove a timer; nothing happens if it is not there."""
        raise self._unbound()

    def _unbound(self) -> TaskError:
        return TaskError("Timers() is a declaration here: use it on a task that Grete runs; in tests use grete.testing")


def of_timer(key: str) -> bytes:
    """Return the encoded key that a timer has as ``key``, of timers whose keys are not just text."""
    return key.encode("latin-1")


def text_of(serde: Serde[Any]) -> Callable[[Any], str] | None:
    """Return the function from keys of timers to the text that is stored; None: they are text."""
    if serde is utf8:
        return None
    encode = functions_of(serde)[0]

    def text(key: Any) -> str:
        try:
            return encode(key).decode("latin-1")
        except Exception as error:
            raise encode_error(serde, key, error, "timer: ") from error

    return text


def key_of(serde: Serde[Any]) -> Callable[[str], Any] | None:
    """Undo ``text_of``."""
    if serde is utf8:
        return None
    decode = functions_of(serde)[1]

    def key(text: str) -> Any:
        try:
            return decode(of_timer(text))
        except Exception as error:
            raise decode_error(serde, of_timer(text), error, "timer: ") from error

    return key
