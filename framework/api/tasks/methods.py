"""The methods of a task: each does its work while it is called. One that would do it later is refused.

The task neither awaits nor iterates what a method returns: its records would be committed, and its work never done.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from types import FunctionType
from typing import Any, NoReturn

from grete.errors import GraphError, TaskError

ASYNC = "is an async def"
_FUNCTIONS = FunctionType, staticmethod, classmethod, functools.partialmethod
METHODS = {  # → what Grete gives it, None: nothing
    "process": "record",
    "process_batch": "records",
    "on_timer": "timer",
    "on_window": "window",
    "on_join": "pair",
    "on_commit": "tokens",
    "init": None,
    "close": None,
}


class ReturnError(TaskError):
    """A method returned something: its code is wrong, not the record. So it stops the task and makes no dead letter."""


def refuse_deferred(where: str, declared: Mapping[str, object], handlers: Collection[str] = ()) -> None:
    """Raise GraphError if one of the methods in ``declared`` (name → class attribute) would do nothing when called.

    ``handlers``: names of methods that take records, beside ``process``.
    A decorator counts as what it is itself: one that runs a coroutine, or sends what a generator yields, is allowed.
    """
    for name in (*METHODS, *handlers):
        form = _form(declared.get(name))
        if form is not None and not (name in ("process", *handlers) and form == ASYNC):
            raise GraphError(
                f"{where}: {name} {form}, so a call of it does no work: write it as a plain def without async and "
                "yield, send by self.OUTPUT.send(key, value), and return nothing"
            )


def refuse_arguments(where: str, task: type, handlers: Collection[str] = ()) -> None:
    """Raise GraphError if one of the methods does not take what Grete gives it. ``handlers``: as above."""
    for name, given in (METHODS | dict.fromkeys(handlers, "record")).items():
        declared = inspect.getattr_static(task, name, None)
        if not isinstance(declared, _FUNCTIONS):
            continue  # it is not there, or an object that says itself what it takes
        try:
            signature = inspect.signature(declared.__get__(object(), task), follow_wrapped=False)  # a decorator may add
        except ValueError:
            continue  # some functions in C do not say it
        try:
            signature.bind(*([] if given is None else [given]))
        except TypeError as error:
            taken = signature.replace(return_annotation=inspect.Signature.empty)
            wanted = "" if given is None else f", {given}"
            raise GraphError(f"{where}: {name} takes {taken}: Grete calls {name}(self{wanted}): {error}") from error


def is_async(method: object) -> bool:
    """Tell whether a method is an async function: ``process`` may be one."""
    return _form(method) == ASYNC


def refuse_return(method: str, value: object) -> NoReturn:
    """Raise ReturnError for what ``method`` returned in place of None."""
    if inspect.iscoroutine(value):
        value.close()  # or Python warns later, at some other place, that it was never awaited
        advice = "it called an async function: call a plain one"
    else:
        advice = "send by self.OUTPUT.send(key, value)"
    raise ReturnError(
        f"{method} returned a value of type {type(value).__name__}, and nothing reads it: {advice}, and return nothing"
    )


def run_now(method: str, function: Callable[[], object]) -> None:
    """Call ``init`` or ``close``. Raises ReturnError if it returned work that is still to be done."""
    value = function()
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        refuse_return(method, value)


def _form(method: object) -> str | None:
    """Return the error in the form of a method, or None."""
    function: Any = method
    while isinstance(function, staticmethod | classmethod | functools.partial | functools.partialmethod):
        function = (
            function.func if isinstance(function, functools.partial | functools.partialmethod) else (function.__func__)
        )
    if not (inspect.isroutine(function) or isinstance(function, type)) and callable(function):
        function = type(function).__call__  # an object that is called as a function
    if inspect.isasyncgenfunction(function):
        return "is an async def that yields"
    if inspect.iscoroutinefunction(function):
        return ASYNC
    return "yields" if inspect.isgeneratorfunction(function) else None
