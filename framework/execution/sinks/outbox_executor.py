"""Steps that may take long, or fail and be tried again, one at a time beside a task's loop."""

import logging
import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from grete.errors import TransientError
from grete.execution.limits import SINK_LOOK_MS_MAX

T = TypeVar("T")

Step = Callable[[], Any]
StepPlan = Generator[
    Step | None, Any, None
]  # yields a step and is sent its result, or None while there is nothing to do


logger = logging.getLogger("grete")


class InlineExecutor(Executor):
    """Runs a step when it is submitted: where time and order must be a test's own."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Return the future of a step that has ended."""
        future: Future[T] = Future()
        _run(future, lambda: fn(*args, **kwargs))
        return future


class ThreadExecutor(Executor):
    """Runs steps in one thread, made with the first one. The process does not wait for it: a crash is always safe."""

    def __init__(self) -> None:
        self._steps: queue.SimpleQueue[tuple[Future[Any], Step] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def end(self) -> None:
        """Let the thread end after the steps that it has: none comes any more."""
        self._steps.put(None)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Return the future of a step that comes after those before it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="grete-sink", daemon=True)
            self._thread.start()
        future: Future[T] = Future()
        self._steps.put((future, lambda: fn(*args, **kwargs)))
        return future

    def _work(self) -> None:
        while (step := self._steps.get()) is not None:
            _run(*step)


def _run(future: "Future[Any]", step: Step) -> None:
    try:
        result = step()
    except Exception as error:  # noqa: BLE001  # the caller that takes the result raises it
        future.set_exception(error)
    else:
        future.set_result(result)


class Background:
    """Runs a plan on an executor. After a TransientError it makes a new plan and waits, longer and longer."""

    def __init__(self, plan: Callable[[], StepPlan], executor: Executor, backoff_ms: int, backoff_ms_max: int) -> None:
        self.idle = False  # the plan has nothing to do
        self.trouble: str | None = None  # the last error, until what failed succeeds
        self._make = plan
        self._plan = plan()
        self._executor = executor
        self._future: Future[Any] | None = None
        self._stale = False  # the step under way belongs to a plan that was given up
        self._since_ms = self._retry_at_ms = 0.0
        self._backoff_ms, self._backoff_ms_max, self._failures = backoff_ms, backoff_ms_max, 0
        self._doing: object = None  # the step under way, without what is given to it: of which sink, and which call
        self._failing: object = None  # the one that failed

    def restart(self) -> None:
        """Begin a new plan now. A step that is under way ends first; its result is dropped."""
        self._plan.close()
        self._plan = self._make()
        self._stale = self._future is not None
        self._retry_at_ms, self.idle = 0.0, False

    def work(self, now_ms: float) -> bool:
        """Begin the next step, or take the result of one; False if there is nothing to do now.

        Raises what a step raised, but for TransientError.
        """
        future = self._future
        if future is None:
            return now_ms >= self._retry_at_ms and self._go_on(None, now_ms)
        if not future.done():
            return False
        self._future = None
        if self._stale:
            self._stale = False
            return True
        try:
            result = future.result()
            if self._doing == self._failing:
                self._recovered()
            self._go_on(result, now_ms)
        except TransientError as error:
            self._failed(error, now_ms)
        return True

    def due_in_ms(self, now_ms: float) -> float:
        """Return in how many ms ``work`` may have something to do."""
        if self._future is not None:
            return 0.0 if self._future.done() else min(SINK_LOOK_MS_MAX, max(0.5, (now_ms - self._since_ms) / 4))
        return 60_000.0 if self.idle else max(0.0, self._retry_at_ms - now_ms)

    def _go_on(self, result: Any, now_ms: float) -> bool:
        step = self._plan.send(result)
        self.idle = step is None
        if step is None:
            self._recovered()
            return False
        self._doing = step.func if isinstance(step, partial) else step
        self._future, self._since_ms = self._executor.submit(step), now_ms
        return True

    def _recovered(self) -> None:
        self._failures, self._failing, self.trouble = 0, None, None

    def _failed(self, error: TransientError, now_ms: float) -> None:
        """Wait, and begin again. The steps before this one will succeed again, and that tells nothing."""
        wait_ms = min(self._backoff_ms << min(self._failures, 20), self._backoff_ms_max)
        self._failures, self._failing, self.trouble = self._failures + 1, self._doing, str(error)
        logger.warning("sink in trouble, will be tried again", extra={"error": str(error), "wait_ms": wait_ms})
        self.restart()
        self._retry_at_ms = now_ms + wait_ms
