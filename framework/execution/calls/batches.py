"""Gathers what records give to one BatchCall, and cuts it into calls of its function."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from grete.api.tasks.calls import BatchCall


class _Item(NamedTuple):
    given: Any
    answer: "asyncio.Future[Any]"
    due: float  # by the loop's clock: when it has waited long enough


class Batches:
    """The items of one BatchCall that wait for a batch. All of it runs in one event loop."""

    def __init__(self, call: BatchCall[Any, Any], run: Callable[[list[Any]], Awaitable[Sequence[Any]]]) -> None:
        """``run`` calls the function in its pool."""
        self._call, self._run = call, run
        self._waiting: deque[_Item] = deque()
        self._busy = 0  # workers
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no hold of them

    async def result(self, given: Any) -> Any:
        """Return the function's result for an item. Raises its error for the batch."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(_Item(given, answer, loop.time() + self._call.wait_ms / 1000))
        self._go()
        return await answer

    def _go(self) -> None:
        """Begin the batches that may begin."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop, waiting = asyncio.get_running_loop(), self._waiting
        while self._busy < self._call.workers and waiting:
            if len(waiting) < self._call.min and waiting[0].due > loop.time():
                self._timer = loop.call_at(waiting[0].due, self._go)
                return
            taken = [waiting.popleft() for _ in range(min(self._call.max, len(waiting)))]
            batch = [item for item in taken if not item.answer.done()]  # it has timed out, or was dropped
            if batch:
                self._busy += 1
                task = loop.create_task(self._one(batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _one(self, batch: list[_Item]) -> None:
        try:
            results = await self._run([item.given for item in batch])
            if len(results) != len(batch):
                raise ValueError(f"{self._call.name} returned {len(results)} results for {len(batch)} items")
        except Exception as error:  # noqa: BLE001  # the function's: each record gets it
            for item in batch:
                if not item.answer.done():
                    item.answer.set_exception(error)
        else:
            for item, result in zip(batch, results, strict=True):
                if not item.answer.done():
                    item.answer.set_result(result)
        finally:
            self._busy -= 1
        self._go()
