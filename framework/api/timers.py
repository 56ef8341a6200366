"""Durable timers in event time."""

import msgspec

from framework.api.topic import Errors
from framework.errors import TaskError


class Timer(msgspec.Struct, frozen=True, gc=False):
    """What ``on_timer`` gets: the time it was set for (ms) and the key it was set with."""

    at: int
    key: str


class Timers:
    """A class attribute of a task, at most one: timers that are part of its state, and survive and roll back with it.

    Time is the task's event time: the minimum over its inputs, and over the producers of each stream, of the timestamps
    that they have reached (docs/explanation/event-time.md). A timer fires once, after the record (or batch, or news of
    a producer's time) with which event time reaches ``at``, in the order of (at, key). An overdue timer fires after the
    current record. What ``on_timer`` sends carries ``at`` unless a timestamp is given. An input without records holds
    time back for the setting event_time_idle_ms; if all are without, nothing fires.

    ``errors`` says what becomes of a timer if ``on_timer`` fails, as for an Input; what it did is undone.
    """

    def __init__(self, errors: Errors = "fail") -> None:
        """Declare the timers."""
        self.errors = errors

    def schedule(self, at: int, key: str = "") -> None:
        """Set a timer for ``at`` (ms since 1970). The same (at, key) twice is one timer. Raises TaskError."""
        raise self._unbound()

    def cancel(self, at: int, key: str = "") -> None:
        """Remove a timer; nothing happens if it is not there."""
        raise self._unbound()

    def _unbound(self) -> TaskError:
        return TaskError(
            "Timers() is a declaration here: use it on a task that Grete runs; in tests use framework.testing"
        )
