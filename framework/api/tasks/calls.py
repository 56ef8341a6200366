"""Calls out of the job: what an ``async def process`` may await."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from grete.api.serdes.serde import Serde, json, refuse_unread
from grete.errors import ConfigError, GraphError, TaskError

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")

Pool = Literal["threads", "processes"]


class CallError(Exception):
    """A call has failed in its last attempt, or timed out. The text names the call, the error and its message."""


class _Declared:
    """The common part of the two kinds of calls."""

    def __init__(self, function: Callable[..., Any], result: Serde[Any], timeout_ms: int, attempts: int) -> None:
        self.function, self.result = function, result
        self.timeout_ms, self.attempts = timeout_ms, attempts
        refuse_unread(result, f"the result of {self.name}")
        for name, value in (("timeout_ms", timeout_ms), ("attempts", attempts)):
            self._check(name, value)

    @property
    def name(self) -> str:
        """The name of its function, for errors."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def _check(self, what: str, value: int) -> None:
        if type(value) is not int or value < 1:
            raise ConfigError(f"{type(self).__name__} of {self.name}: {what} = {value!r}: need a whole number above 0")

    def begin(self, *_args: Any, **_kwargs: Any) -> Awaitable[Any]:
        """Begin the call: bound on the running task. Raises TaskError elsewhere."""
        raise TaskError(f"the call of {self.name} is used outside of async def process: only that may await a call")


class Call(_Declared, Generic[P, R]):
    """A class attribute of a task: ``await self.price(sku)`` calls ``function(sku)`` outside of the job.

    A call begins when it is made, so two calls that are made before the first is awaited run side by side. It may be
    made again after a crash, so let it carry an id of the record if it changes something.

    Args:
        function: An async function, or a plain one, which then runs in a thread. It must not touch the task.
        result: The serde of what it returns; the task gets what the serde makes of it, as a replay will.
        attempts: Each may take ``timeout_ms``. After the last one, with pauses that grow and vary, CallError is raised.
    """

    @overload
    def __init__(
        self,
        function: Callable[P, Awaitable[R]],
        *,
        result: Serde[R] = json,
        timeout_ms: int = 10_000,
        attempts: int = 3,
    ) -> None: ...

    @overload
    def __init__(
        self, function: Callable[P, R], *, result: Serde[R] = json, timeout_ms: int = 10_000, attempts: int = 3
    ) -> None: ...

    def __init__(
        self, function: Callable[P, Any], *, result: Serde[Any] = json, timeout_ms: int = 10_000, attempts: int = 3
    ) -> None:
        """Declare the call. Raises ConfigError on a number below 1."""
        super().__init__(function, result, timeout_ms, attempts)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Begin a call; await what is returned. Raises TaskError outside of ``process``."""
        return self.begin(*args, **kwargs)


class BatchCall(_Declared, Generic[A, R]):
    """A class attribute of a task: ``await self.score(features)`` for each record, one call of ``function`` for many.

    A batch begins once ``min`` records wait, or the first has waited ``wait_ms``, and a worker is free.

    Args:
        function: Gets a list of what the records gave, and returns as many results, in their order.
        max: The most records in a batch. ``result`` and ``attempts`` are as for a Call.
        pool: "threads", or "processes", which import the function by name; there are ``workers`` of them.
        timeout_ms: Of an attempt. A thread that has timed out cannot be ended, and keeps its worker.
    """

    def __init__(
        self,
        function: Callable[[list[A]], Sequence[R]],
        *,
        result: Serde[R] = json,
        min: int = 1,  # noqa: A002  # the word
        max: int = 64,  # noqa: A002  # the word
        wait_ms: int = 10,
        pool: Pool = "threads",
        workers: int = 1,
        timeout_ms: int = 60_000,
        attempts: int = 3,
    ) -> None:
        """Declare the call. Raises ConfigError: a number below 1, min above max, or another pool."""
        super().__init__(function, result, timeout_ms, attempts)
        self.min, self.max, self.wait_ms, self.pool, self.workers = min, max, wait_ms, pool, workers
        for name, value in (("min", min), ("max", max), ("wait_ms", wait_ms), ("workers", workers)):
            self._check(name, value)
        if min > max:
            raise ConfigError(f"BatchCall of {self.name}: min = {min} is above max = {max}")
        if pool not in ("threads", "processes"):
            raise ConfigError(f"BatchCall of {self.name}: pool = {pool!r}: need 'threads' or 'processes'")

    def __call__(self, item: A) -> Awaitable[R]:
        """Begin a call; await what is returned. Raises TaskError outside of ``process``."""
        return self.begin(item)


AnyCall = Call[Any, Any] | BatchCall[Any, Any]


def check_calls(where: str, calls: Iterable[str], in_flight: int, by_order: Sequence[str], *, awaits: bool) -> None:
    """Refuse calls that no method may await, and what an async ``process`` cannot have beside it. Raises GraphError."""
    if not awaits:
        first = min(calls)
        raise GraphError(
            f"{where} declares the call {first!r} and awaits none: make process an async def, and await self.{first}(…)"
        )
    if by_order:
        raise GraphError(
            f"{where} has an async process and {by_order[0]}, which goes by the event time while a record is "
            "processed: send the results of the calls to a stage of its own with it"
        )
    if type(in_flight) is not int or in_flight < 1:
        raise GraphError(f"{where}: in_flight = {in_flight!r}: need a whole number above 0")
