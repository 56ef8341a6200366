"""Durable timers, in event time or by the wall clock."""

from typing import Literal

import msgspec

from grete.api.topics.topic import Errors
from grete.errors import ConfigError, TaskError

Clock = Literal["event", "wall"]
CLOCKS: tuple[Clock, ...] = ("event", "wall")


class Timer(msgspec.Struct, frozen=True, gc=False):
    """The argument of ``on_timer``: its due time (ms), the key it was set with, and its clock."""

    at: int
    key: str
    clock: Clock = "event"


class Timers:
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

    ``errors`` says what becomes of a timer if ``on_timer`` fails, as for an Input; what it did is undone.
    """

    def __init__(self, errors: Errors = "fail", *, clock: Clock = "event") -> None:
        """Declare the timers. Raises ConfigError for another clock."""
        if clock not in CLOCKS:
            raise ConfigError(f"Timers(clock={clock!r}): need one of {', '.join(map(repr, CLOCKS))}")
        self.errors = errors
        self.clock: Clock = clock

    def schedule(self, at: int, key: str = "") -> None:
        """Set a timer for ``at`` (ms since 1970). The same (at, key) twice is one timer. Raises TaskError."""
        raise self._unbound()

    def cancel(self, at: int, key: str = "") -> None:
        """Remove a timer; nothing happens if it is not there."""
        raise self._unbound()

    def _unbound(self) -> TaskError:
        return TaskError("Timers() is a declaration here: use it on a task that Grete runs; in tests use grete.testing")
