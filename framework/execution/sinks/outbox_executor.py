"""Steps that may take long, or fail and be tried again, one at a time beside a task's loop."""

import logging
import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from grete.errors import OutputRefused, TransientError
from grete.execution.limits import SINK_LOOK_MS_MAX, SINK_WAIT_MS_MAX

T = TypeVar("T")

Step = Callable[[], Any]


class Rest(NamedTuple):
    """A rest between two steps: the next one begins ``ms`` after the last one has begun, or later."""

    ms: float


# yields a step and is sent its result, or None while there is nothing to do
StepPlan = Generator[Step | Rest | None, Any, None]


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


class Retries:
    """Failures of a step in a row, and the wait before the next attempt: it doubles up to ``wait_ms_max``.

    It is longer if the error says so.

    ``trouble``: the last error, until what failed succeeds. ``due_ms``: of the next attempt.
    """

    def __init__(self, wait_ms: int, wait_ms_max: int) -> None:
        self.trouble: str | None = None
        self.due_ms = 0.0
        self._wait_ms, self._wait_ms_max, self._failures = wait_ms, wait_ms_max, 0
        self._failing: object = None  # the step that failed

    def succeeded(self, step: object) -> None:
        """Note a success. The steps before the one that failed will succeed again, and that tells nothing."""
        if step == self._failing:
            self.recovered()

    def recovered(self) -> None:
        """Count from the beginning."""
        self._failures, self._failing, self.trouble = 0, None, None

    def failed(self, step: object, error: TransientError, now_ms: float) -> None:
        """Note a failure, and plan the next attempt."""
        wait_ms = min(self._wait_ms << min(self._failures, 20), self._wait_ms_max)
        wait_ms = max(wait_ms, min(error.wait_ms, SINK_WAIT_MS_MAX))
        self._failures, self._failing, self.trouble = self._failures + 1, step, str(error)
        self.due_ms = now_ms + wait_ms
        logger.warning("sink in trouble, will be tried again", extra={"error": str(error), "wait_ms": wait_ms})


class Background:
    """Runs a plan on an executor. After a TransientError it makes a new plan and waits, longer and longer."""

    def __init__(self, plan: Callable[[], StepPlan], executor: Executor, backoff_ms: int, backoff_ms_max: int) -> None:
        self.idle = False  # the plan has nothing to do
        self.retries = Retries(backoff_ms, backoff_ms_max)
        self._make = plan
        self._plan = plan()
        self._executor = executor
        self._future: Future[Any] | None = None
        self._stale = False  # the step under way belongs to a plan that was given up
        self._since_ms = 0.0
        self._doing: object = None  # the step under way, without what is given to it: of which sink, and which call

    def restart(self) -> None:
        """Begin a new plan now. A step that is under way ends first; its result is dropped."""
        self._plan.close()
        self._plan = self._make()
        self._stale = self._future is not None
        self.retries.due_ms, self.idle = 0.0, False

    def work(self, now_ms: float) -> bool:
        """Begin the next step, or take the result of one; False if there is nothing to do now.

        Raises what a step raised, but for TransientError, and OutputRefused if the plan takes it.
        """
        future = self._future
        if future is None:
            return now_ms >= self.retries.due_ms and self._go_on(self._plan.send, None, now_ms)
        if not future.done():
            return False
        self._future = None
        if self._stale:
            self._stale = False
            return True
        try:
            result = future.result()
            self.retries.succeeded(self._doing)
            self._go_on(self._plan.send, result, now_ms)
        except OutputRefused as error:
            self._go_on(self._plan.throw, error, now_ms)  # it knows what becomes of the output, or raises it again
        except TransientError as error:
            self.restart()
            self.retries.failed(self._doing, error, now_ms)
        return True

    def due_in_ms(self, now_ms: float) -> float:
        """Return in how many ms ``work`` may have something to do."""
        if self._future is not None:
            return 0.0 if self._future.done() else min(SINK_LOOK_MS_MAX, max(0.5, (now_ms - self._since_ms) / 4))
        return 60_000.0 if self.idle else max(0.0, self.retries.due_ms - now_ms)

    def _go_on(self, tell: Callable[[Any], Step | Rest | None], result: Any, now_ms: float) -> bool:
        assert self._future is None, f"{self._doing} has not ended, and a sink does one step at a time"
        step = tell(result)
        self.idle = step is None
        if isinstance(step, Rest):
            self.retries.due_ms = self._since_ms + step.ms
            return True
        if step is None:
            self.retries.recovered()
            return False
        self._doing = step.func if isinstance(step, partial) else step
        self._future, self._since_ms = self._executor.submit(step), now_ms
        return True
