"""The answer of a call: awaited by the record's code, recorded in deterministic mode."""

from collections.abc import Generator
from typing import Any

from grete.api.serdes.serde import encode_error, functions_of
from grete.api.tasks.calls import AnyCall, CallError
from grete.api.tasks.methods import ReturnError, refuse_return
from grete.errors import TaskError
from grete.execution.calls.ports import Pending
from grete.protocol.notes import CallResult

RESULT_BYTES_MAX = 256 * 1024  # of one call: a record's results are one message of the changelog


class Answer:
    """One call. Awaiting it gives its result, or raises CallError; as often as one likes."""

    def __init__(self, call: AnyCall, source: Pending | CallResult) -> None:
        """``source``: of a call that was begun, or of one that is recorded."""
        self._call = call
        self._future = None if isinstance(source, CallResult) else source
        self._outcome = source if isinstance(source, CallResult) else None

    @property
    def done(self) -> bool:
        """Whether it has returned or failed."""
        return self._future is None or self._future.done()

    @property
    def outcome(self) -> CallResult:
        """Return the result of the call. The call must be done."""
        if self._outcome is None:
            assert self._future is not None
            error = self._future.exception()
            if error is None:
                self._outcome = self._encoded(self._future.result())
            else:
                self._outcome = _failed(f"the call of {self._call.name} failed: {type(error).__name__}: {error}")
        return self._outcome

    def _encoded(self, result: object) -> CallResult:
        try:
            data = functions_of(self._call.result)[0](result)
        except Exception as error:  # noqa: BLE001  # a serde may raise anything
            where = f"result of the call of {self._call.name}: "
            return _failed(str(encode_error(self._call.result, result, error, where)))
        if len(data) > RESULT_BYTES_MAX:
            return _failed(
                f"the call of {self._call.name} returned {len(data)} bytes, and {RESULT_BYTES_MAX} are the most: "
                "return what the task needs of it"
            )
        return CallResult(ok=True, data=data)

    def cancel(self) -> None:
        """Let go of the call: its result is of no use any more."""
        if self._future is not None:
            self._future.cancel()

    def __await__(self) -> Generator["Answer", None, Any]:
        """Wait, then return the result. Raises CallError if the call has failed."""
        while not self.done:
            yield self
        ok, data = self.outcome
        if not ok:
            raise CallError(data.decode())
        return functions_of(self._call.result)[1](data)


def _failed(text: str) -> CallResult:
    return CallResult(ok=False, data=text.encode(errors="replace"))


ONLY_CALLS = (
    "an async method awaits something that is no call of the task: what it waits for has no time-out, and is not "
    "recorded. Put it into an async function, declare NAME = Call(function) in the task, and await self.NAME(…)"
)


def returned(value: object) -> Exception | None:
    """Return the error of code that has returned something."""
    if value is not None:
        try:
            refuse_return("an async method", value)
        except ReturnError as error:
            return error
    return None


def explained(error: Exception) -> Exception:
    """Return the error of a record's code; of one that asked asyncio for its loop, what to do instead."""
    if isinstance(error, RuntimeError) and "event loop" in str(error):
        return TaskError(ONLY_CALLS).with_traceback(error.__traceback__)
    return error
