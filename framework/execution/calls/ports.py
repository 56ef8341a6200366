"""Ports of asynchronous calls: a thread makes them in a worker, a virtual clock in tests."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from grete.api.tasks.calls import AnyCall
from grete.protocol.ids import TopicPartition


class Pending(Protocol):
    """A call under way: a concurrent.futures.Future, or the like."""

    def done(self) -> bool:
        """Whether it has returned or failed."""

    def result(self) -> Any:
        """Return the result of its function. Raises the function's error."""

    def exception(self) -> BaseException | None:
        """Return the error of its function, or None."""

    def cancel(self) -> bool:
        """Let go of it: its result is of no use any more."""


class Caller(Protocol):
    """Makes calls outside of the task. ``grete.execution.calls.thread`` is the one of workers."""

    def begin(self, call: AnyCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pending:
        """Begin a call, with its time-outs and attempts."""


class TurnsAndTimers(Protocol):
    """The timers of event time of a task whose records have turns (grete.execution.task_code.task_time)."""

    @property
    def holds(self) -> bool:
        """Whether no record has its turn now: timers that are due are left to the next slice (E10)."""

    def begin_slice(self) -> None:
        """Begin a turn: no more than a slice may fire in it."""


class InFlight(Protocol):
    """The records of a task that wait for calls, as its driver and its mode see them."""

    @property
    def count(self) -> int:
        """Return the number of steps that have not had their turn. No state or output includes their effects yet."""

    @property
    def full(self) -> bool:
        """Whether no more is to be read before some of them have had their turn."""

    def then(self, step: Callable[[], None]) -> None:
        """Do a step behind all of them: at once, if there are none."""

    def take_reached(self) -> Mapping[TopicPartition, int]:
        """Return and forget the offset behind the last record that had its turn, by partition."""

    def work(self) -> bool:
        """Begin, resume and finish what can be; return whether anything was. Raises what ends the task."""

    def clear(self) -> None:
        """Drop all of them: what their calls return is dropped."""
