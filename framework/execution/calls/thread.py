"""Makes the calls of a process in a thread beside its tasks: an event loop, and pools for what blocks or computes."""

import asyncio
import inspect
import multiprocessing
import os
import queue
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, ClassVar, TypeVar

from tenacity import AsyncRetrying, RetryCallState, stop_after_attempt, wait_random_exponential

from grete import python_start
from grete.api.tasks.calls import AnyCall, BatchCall, Call
from grete.errors import TransientError
from grete.execution.calls.batches import Batches

T = TypeVar("T")


class DaemonThreads(Executor):
    """Up to ``count`` threads, each made when a function finds none free."""

    def __init__(self, count: int) -> None:
        self._count, self._made = count, 0
        self._free = threading.Semaphore(0)
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Return the future of a function that runs as soon as a thread is free."""
        future: Future[T] = Future()
        self._work.put((future, lambda: fn(*args, **kwargs)))
        if not self._free.acquire(blocking=False) and self._made < self._count:
            self._made += 1
            threading.Thread(target=self._run, name=f"grete-call-{self._made}", daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            future, function = self._work.get()
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:  # noqa: BLE001  # the caller that takes the result raises it
                    future.set_exception(error)
                else:
                    future.set_result(result)
            self._free.release()


PAUSE_S, PAUSE_S_MAX = 0.1, 10.0  # between two attempts: the most before the second one, and before any
TURN_S = 0.2  # of the loop, at least one; of a turn that takes over a second the worker's log tells
THREADS = 32  # for plain functions of Calls, of which each holds one while it waits


class CallThread:
    """The calls of all tasks of this process, for as long as that lives: its thread is a daemon."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._threads = DaemonThreads(THREADS)
        self._batches: dict[BatchCall[Any, Any], Batches] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="grete-calls", daemon=True)
        self._thread.start()
        self.turns = 0
        self._loop.call_soon_threadsafe(self._turn)

    @property
    def ident(self) -> int | None:
        """Its thread, in which async functions of users run."""
        return self._thread.ident

    def _turn(self) -> None:
        self.turns += 1
        self._loop.call_later(TURN_S, self._turn)

    def begin(self, call: AnyCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Future[Any]":
        """Begin a call, with its time-outs and attempts."""
        once = self._batches_of(call).result if isinstance(call, BatchCall) else partial(self._once, call)
        return asyncio.run_coroutine_threadsafe(_attempts(call, partial(once, *args, **kwargs)), self._loop)

    async def _once(self, call: Call[Any, Any], *args: Any, **kwargs: Any) -> Any:
        if inspect.iscoroutinefunction(call.function):
            return await call.function(*args, **kwargs)
        result = await self._loop.run_in_executor(self._threads, partial(call.function, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    def _batches_of(self, call: BatchCall[Any, Any]) -> Batches:
        if call not in self._batches:
            pool = _pool(call)
            self._batches[call] = Batches(call, lambda items: self._loop.run_in_executor(pool, call.function, items))
        return self._batches[call]


async def _attempts(call: AnyCall, once: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return the result of the first attempt that has one. Raises what the last one raised."""
    pauses = wait_random_exponential(multiplier=PAUSE_S, max=PAUSE_S_MAX)

    def pause(state: RetryCallState) -> float:
        error = None if state.outcome is None else state.outcome.exception()
        asked_ms = error.wait_ms if isinstance(error, TransientError) else 0
        return max(pauses(state), min(asked_ms, call.timeout_ms) / 1000)

    async def attempt() -> Any:
        async with asyncio.timeout(call.timeout_ms / 1000):
            return await once()

    return await AsyncRetrying(stop=stop_after_attempt(call.attempts), wait=pause, reraise=True)(attempt)


class _Spawned(SpawnProcess):
    """A process of a pool, which the library starts by ``-c``."""

    def start(self) -> None:
        with _safely():
            super().start()


class _Spawn(SpawnContext):
    """The start method of a process pool: a fork would copy the locks of the running threads."""

    Process: ClassVar[type[SpawnProcess]] = _Spawned


def _safely() -> AbstractContextManager[None]:
    """Return the context of a start by multiprocessing, which passes on the ``-P`` of a worker itself."""
    return nullcontext() if sys.flags.safe_path else python_start.started_by_others()


def _pool(call: BatchCall[Any, Any]) -> Executor:
    if call.pool == "threads":
        return DaemonThreads(call.workers)
    with _safely():  # it starts a process that tracks its semaphores
        return ProcessPoolExecutor(call.workers, _Spawn(), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Let a process of a pool end when the worker is killed: it waits for work in a pipe that it holds open itself."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="grete-parent", daemon=True).start()
