"""Checks the invariants of a task that ends by an error: a broken state may be the cause of the error (C5)."""

from collections.abc import Callable
from functools import wraps
from traceback import walk_tb
from typing import Any, TypeVar

from grete.core.ports import Core
from grete.errors import FrameworkError

NAMED_MAX = 500  # characters of what is violated: it may print all that a channel or a batch holds
MethodT = TypeVar("MethodT", bound=Callable[..., Any])


def names_violations(method: MethodT) -> MethodT:
    """Let an error that leaves this method of a driver name an invariant that its core violates."""

    @wraps(method)
    def named(driver: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(driver, *args, **kwargs)
        except Exception as error:
            name_violation(driver.core, error)
            raise

    return named  # type: ignore[return-value]  # it is called as the method is


def name_violation(core: Core, error: Exception) -> None:
    """Check the invariants of a task that ends by ``error``; name one that is violated beside that cause."""
    try:
        core.check_invariants()
    except Exception as violation:  # noqa: BLE001  # a state that must not be may break its own check
        if str(violation) == str(error):  # it is the cause
            return
        *_, (frame, line) = walk_tb(violation.__traceback__)  # some checks say no more than where they are
        where = f"{frame.f_code.co_qualname}, line {line}"
        text = f"besides, {core.task.name} violates an invariant ({where}): {violation!s:.{NAMED_MAX}}"
        if isinstance(error, FrameworkError):
            error.args = (f"{error.args[0]}; {text}", *error.args[1:])  # reports and logs take no more than this
        else:
            error.add_note(text)
