"""Errors of the code of a record with calls, in words that say what to do."""

from grete.api.tasks.methods import ReturnError, refuse_return
from grete.errors import TaskError

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
