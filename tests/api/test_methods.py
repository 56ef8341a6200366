"""The methods of a task class: a form that would do no work is refused when the job is built."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from grete import Input, Job, Record, Store, Task, Timers, Topic, TumblingWindow, int64, on, utf8
from grete.errors import GraphError

ORDERS = Topic("orders", key=utf8, value=int64)


async def _awaits(_self: Any, *_: Any) -> None:
    """Do nothing, later."""


def _yields(_self: Any, *_: Any) -> Iterator[int]:
    """Do nothing, when it is iterated."""
    yield 1


async def _awaits_and_yields(_self: Any, *_: Any) -> AsyncIterator[int]:
    """Do nothing, later, when it is iterated."""
    yield 1


def _works(_self: Any, *_: Any) -> None:
    """Do nothing, now."""


class _Called:
    """An object that is called as a function is."""

    async def __call__(self, *_: Any) -> None:
        """Do nothing, later."""


FORMS: dict[str, tuple[Any, str]] = {
    "async def": (_awaits, "is an async def"),
    "generator": (_yields, "yields"),
    "async generator": (_awaits_and_yields, "is an async def that yields"),
    "partial": (functools.partial(_awaits, None), "is an async def"),
    "partial of a partial": (functools.partial(functools.partial(_yields, None)), "yields"),
    "static": (staticmethod(_yields), "yields"),
    "callable object": (_Called(), "is an async def"),
}


def task(**methods: Any) -> type[Task]:
    """Return a task class that declares what all methods need."""
    members: dict[str, Any] = {
        "name": "add-up",
        "orders": Input(ORDERS),
        "totals": Store("totals", key=utf8, value=int64),
        "timers": Timers(),
        "window": TumblingWindow("minute", 60_000, utf8, int64),
        "on_timer": _works,
        "on_window": _works,
    }
    if "process_batch" not in methods:
        members["process"] = _works
    return type("AddUp", (Task,), members | methods)


@pytest.mark.parametrize("method", ["process", "process_batch", "on_timer", "on_window", "init", "close"])
@pytest.mark.parametrize("form", FORMS)
def test_a_method_that_would_do_no_work_is_refused_when_the_job_is_built(method: str, form: str) -> None:
    """The error names the stage, the class, the method and its form, and says what to write instead."""
    function, is_what = FORMS[form]
    with pytest.raises(GraphError) as caught:
        Job("sums", stages=[task(**{method: function})])
    if (method, is_what) == ("process", "is an async def"):  # as such it may be: but not beside a window
        assert "has an async process and a TumblingWindow" in str(caught.value)
        return
    text = str(caught.value)
    assert f"stage 'add-up' (AddUp): {method} {is_what}, so a call of it does no work" in text
    assert "send by self.OUTPUT.send(key, value)" in text


def test_an_inherited_method_is_looked_at_too() -> None:
    """A base class of the task may be where the method is."""

    class Base(Task):
        def process(self, record: Record[str, int]) -> Iterator[int]:
            """Do nothing."""
            yield record.value

    class AddUp(Base):
        orders = Input(ORDERS)

    with pytest.raises(GraphError, match="process yields"):
        Job("sums", stages=[AddUp])


def test_a_decorator_that_does_the_work_is_allowed() -> None:
    """A decorated generator is allowed if the decorator itself does the sending."""

    def sends(function: Callable[..., Iterator[int]]) -> Callable[..., None]:
        @functools.wraps(function)
        def process(self: Task, record: Record[str, int]) -> None:
            for value in function(self, record):
                assert value

        return process

    Job("sums", stages=[task(process=sends(_yields))])


def _alone(_self: Any) -> None:
    """Do nothing, with nothing."""


def _alone_at_all() -> None:
    """Do nothing, without a task."""


def _of_two(_self: Any, _one: Any, _other: Any) -> None:
    """Do nothing, with two values."""


GIVEN = {"process": "record", "process_batch": "records", "on_timer": "timer", "on_window": "window"}


@pytest.mark.parametrize("method", GIVEN)
@pytest.mark.parametrize("function", [_alone, _of_two, staticmethod(_alone_at_all)])
def test_a_method_that_does_not_take_what_it_is_given_is_refused_when_the_job_is_built(
    method: str, function: Any
) -> None:
    """It was found at the first record, which was blamed for it. The error says how the method is called."""
    with pytest.raises(GraphError) as caught:
        Job("sums", stages=[task(**{method: function})])
    assert f"(AddUp): {method} takes (" in str(caught.value)
    assert f"Grete calls {method}(self, {GIVEN[method]})" in str(caught.value)


def test_methods_of_inputs_and_those_that_get_nothing_are_looked_at_too() -> None:
    """One of @on takes a record, and init nothing."""
    take = on(ORDERS)(_alone)  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(GraphError, match=r"take takes \(\): Grete calls take\(self, record\)"):
        Job("sums", stages=[type("AddUp", (Task,), {"orders": Input(ORDERS), "take": take})])
    with pytest.raises(GraphError, match=r"init takes \(_one: Any, _other: Any\): Grete calls init\(self\)"):
        Job("sums", stages=[task(init=_of_two)])


def test_a_method_may_have_more_arguments_than_it_is_given() -> None:
    """With defaults, or because a decorator adds them: what is called is looked at, not what it calls."""

    def adds(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def process(self: Task, record: Record[str, int]) -> None:
            function(self, record, 1)

        return process

    def with_default(_self: Task, _record: Record[str, int], _more: int = 1) -> None:
        """Do nothing."""

    for allowed in (adds(_of_two), with_default, staticmethod(lambda _record: None)):
        Job("sums", stages=[task(process=allowed)])
