"""Threads for functions that block, which the end of the process does not wait for: a crash is always safe."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

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
