"""Ports of asynchronous calls: a thread makes them in a worker, a virtual clock in tests."""

from typing import Any, Protocol

from grete.api.tasks.calls import AnyCall


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
