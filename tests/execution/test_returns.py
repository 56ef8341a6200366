"""A task whose method returns a value is stopped at the first record, as the value would be lost."""

import asyncio
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from grete import (
    DeadLetter,
    Input,
    Job,
    Output,
    Record,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    Window,
    bytes_serde,
    int64,
    utf8,
)
from grete.errors import TaskError
from grete.testing import Kit

ORDERS = Topic("orders", key=utf8, value=int64)
TOTALS = Topic("totals", key=utf8, value=int64)
LETTERS = Topic("letters", key=bytes_serde, value=bytes_serde)


async def _later(value: int) -> int:
    return value


def _steps(value: int) -> Iterator[int]:
    yield value


RETURNED: dict[str, tuple[Callable[[int], object], str]] = {
    "a value": (lambda value: value, "int"),
    "False": (lambda _: False, "bool"),
    "a list": (lambda value: [value], "list"),
    "a coroutine": (_later, "coroutine"),
    "a generator": (_steps, "generator"),
}


def job(returns: Callable[[int], object], *, letters: bool, timers: bool, batch: bool, mode: Any) -> Job:
    """Return a job that sends each order on, and returns something for orders above 1."""

    def handle(self: Any, record: Record[str, int]) -> object:
        self.out.send(record.key, record.value)
        return returns(record.value) if record.value > 1 else None

    def handle_all(self: Any, records: list[Record[str, int]]) -> object:
        results = [handle(self, record) for record in records]
        return next((result for result in results if result is not None), None)

    members: dict[str, Any] = {
        "name": "pass-on",
        "orders": Input(ORDERS, errors=DeadLetter(LETTERS)) if letters else Input(ORDERS),
        "out": Output(TOTALS),
        "process_batch" if batch else "process": handle_all if batch else handle,
    }
    if timers:
        members |= {"timers": Timers(), "on_timer": lambda _self, _timer: None}
    return Job("pass", stages=[type("PassOn", (Task,), members)], mode=mode)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("letters", [False, True], ids=["fail", "letters"])
@pytest.mark.parametrize("timers", [False, True], ids=["no timers", "timers"])
@pytest.mark.parametrize("batch", [False, True], ids=["records", "batches"])
@pytest.mark.parametrize("what", RETURNED)
def test_a_record_for_which_something_is_returned_stops_the_task(
    what: str, *, batch: bool, timers: bool, letters: bool, mode: str
) -> None:
    """The error names stage, topic, offset and type, and what to do; the record makes no dead letter.

    Nothing of it is committed, so a repaired task processes it again.
    """
    returns, kind = RETURNED[what]
    kit = Kit(job(returns, letters=letters, timers=timers, batch=batch, mode=mode))
    kit.feed(ORDERS, "a", 1)
    kit.feed(ORDERS, "b", 2)
    with warnings.catch_warnings(action="error"), pytest.raises(TaskError) as caught:
        kit.run()
    text = str(caught.value)
    assert "stage pass-on, partition 0: topic orders (orders[0]), offset" in text
    assert f"{'process_batch' if batch else 'process'} returned a value of type {kind}," in text
    assert ("it called an async function" if what == "a coroutine" else "send by self.OUTPUT.send(key, value)") in text
    assert not kit.outputs(LETTERS) if letters else True


class OnTimer(Task):
    orders = Input(ORDERS)
    timers = Timers()

    def process(self, record: Record[str, int]) -> None:
        self.timers.schedule(record.timestamp + 1, record.key)

    def on_timer(self, timer: Timer) -> int:
        return timer.at


class OnWindow(Task):
    orders = Input(ORDERS)
    sums = TumblingWindow("sums", 1_000, utf8, int64)

    def process(self, record: Record[str, int]) -> None:
        self.sums.update(record.key, record.timestamp, lambda _: record.value)

    def on_window(self, window: Window[str, int]) -> object:
        return _later(window.value)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize(
    ("task", "text"),
    [(OnTimer, "on_timer returned a value of type int"), (OnWindow, "on_window returned a value of type coroutine")],
)
def test_a_timer_or_window_that_returns_something_stops_the_task(task: type[Task], text: str, mode: Any) -> None:
    """The error names the timer or window."""
    kit = Kit(Job("timed", stages=[task], mode=mode))
    kit.feed(ORDERS, "a", 1)
    kit.process()
    kit.now_ms += 2_000
    kit.feed(ORDERS, "a", 2)
    with pytest.raises(TaskError, match=text) as caught:
        kit.advance(1_000)
    assert "stage on-" in str(caught.value)


class Begin(Task):
    orders = Input(ORDERS)

    def init(self) -> object:  # type: ignore[override]  # what it is about
        return asyncio.sleep(0)

    def process(self, record: Record[str, int]) -> None: ...


class Named(Begin):
    def init(self) -> object:  # type: ignore[override]  # as above
        return "ready"


def test_an_init_that_returns_work_is_refused_and_one_that_returns_a_value_is_not() -> None:
    """A coroutine of ``init`` would never run; what else it returns does not matter."""
    kit = Kit(Job("begin", stages=[Begin]))
    with pytest.raises(TaskError, match="init returned a value of type coroutine"):
        kit.run()
    Kit(Job("named", stages=[Named])).run()
