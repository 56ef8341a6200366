"""The calls that tasks of some worlds make: each is answered in a time of its own, and no two answers are the same."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from zlib import crc32

from grete.api.tasks.calls import AnyCall, CallError
from grete.protocol.notes import CallResult

LATENCIES_MS = 0, 0, 1, 4, 15, 60
OFTEN_FAILS = 8  # one call of as many, in deterministic tasks


def ask(drawn: int, given: int) -> bytes:
    """Answer what an aligned task gives, as its recorder knows that; a deterministic one gives 0. Raises ValueError.

    ``drawn`` is the caller's, which puts it in the place of what the task has there.
    """
    if given:
        return b"%d" % given
    if drawn % OFTEN_FAILS == 0:
        raise ValueError(f"no answer, {drawn}")
    return b"%d" % drawn


async def result_of(call: Awaitable[bytes]) -> CallResult:
    """Return the result of a call, as the log has it."""
    try:
        return CallResult(ok=True, data=await call)
    except CallError as error:
        return CallResult(ok=False, data=str(error).encode())


def combined(results: Sequence[CallResult]) -> int:
    """Return the number that a deterministic task makes of the results of its calls for a record."""
    draw = 0
    for ok, data in results:
        draw = crc32(b"%d" % draw, int(data) if ok else crc32(data))
    return draw


class SimCall:
    """A call under way: it is answered once the world's time is there."""

    def __init__(self, caller: "SimCaller", made: Callable[[], bytes], due: int) -> None:
        self._caller, self._due = caller, due
        self._error: Exception | None = None
        self._result: bytes | None = None
        try:
            self._result = made()
        except ValueError as error:
            self._error = error

    def done(self) -> bool:
        """Whether it is answered."""
        if self._caller.now() < self._due:
            return False
        self._caller.answered(self)
        return True

    def result(self) -> Any:
        """Return the answer."""
        return self._result

    def exception(self) -> BaseException | None:
        """Return the error, None if there is none."""
        return self._error

    def cancel(self) -> bool:
        """Let go of it."""
        self._caller.under_way.pop(self, None)
        return True


class SimCaller:
    """The grete.execution.calls.ports.Caller of one process. It draws from a generator of its own."""

    def __init__(self, seed: int, process: int, now: Callable[[], int], seen: Counter[str]) -> None:
        self.now = now
        self.under_way: dict[SimCall, None] = {}  # in the order in which they were made
        self._draws = random.Random(f"calls {seed} {process}")
        self._seen = seen

    def begin(self, call: AnyCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SimCall:
        """Begin a call."""
        drawn, latency = self._draws.getrandbits(32), self._draws.choice(LATENCIES_MS)
        under_way = SimCall(self, lambda: call.function(drawn, *args[1:], **kwargs), self.now() + latency)
        self.under_way[under_way] = None
        self._seen["calls made"] += 1
        return under_way

    def answered(self, call: SimCall) -> None:
        """Note that a call is answered."""
        if call in self.under_way:
            self._seen["calls answered ahead of earlier ones"] += next(iter(self.under_way)) is not call
            self.under_way.pop(call)
