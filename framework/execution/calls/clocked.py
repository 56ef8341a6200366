"""Calls at the pace of a given clock: answered some ms of it after they were made, in an order of their own."""

from collections.abc import Callable
from typing import Any

from grete.api.tasks.calls import AnyCall
from grete.execution.calls.ports import Pending
from grete.execution.calls.shared import shared_calls

PACES_MS = 3, 1, 4, 1, 5  # of one call after the other: answers come in another order than calls


class _Later:
    """A call that was made, and is answered when the clock is there."""

    def __init__(self, made: Pending, due_ms: float, now_ms: Callable[[], float]) -> None:
        self._made, self._due_ms, self._now_ms = made, due_ms, now_ms

    def done(self) -> bool:
        """Whether it is answered: when the clock is there, this waits for it."""
        if self._now_ms() < self._due_ms:
            return False
        self._made.exception()
        return True

    def result(self) -> Any:
        """Return the result of the function. Raises the function's error."""
        return self._made.result()

    def exception(self) -> BaseException | None:
        """Return the error of the function."""
        return self._made.exception()

    def cancel(self) -> bool:
        """Let go of it."""
        return self._made.cancel()


class ClockedCalls:
    """A Caller for tests, where time passes only as they say."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._count = 0

    def begin(self, call: AnyCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pending:
        """Begin a call; it is answered some ms of the clock later, whatever time it takes."""
        made = shared_calls().begin(call, args, kwargs)
        self._count += 1
        return _Later(made, self._now_ms() + PACES_MS[self._count % len(PACES_MS)], self._now_ms)
