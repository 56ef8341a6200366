"""Jobs with calls in the test kit: in both modes, each record once and its results the same through crashes."""

import itertools
from collections import Counter
from typing import Any

import pytest

from grete import (
    BatchCall,
    Call,
    CallError,
    DeadLetter,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    bytes_serde,
    int64,
    json,
    utf8,
)
from grete.api.tasks.mode import Mode
from grete.errors import TaskError
from grete.testing import Kit

asked = Topic("asked", key=utf8, value=utf8)
drawn = Topic("drawn", key=utf8, value=json)
out = Topic("out", key=utf8, value=json)
letters = Topic("letters", key=bytes_serde, value=bytes_serde)
RECORDS = 120

numbers = itertools.count()  # no two calls return the same
calls: Counter[str] = Counter()


async def draw(what: str) -> int:
    """Return another number at each call."""
    calls[what] += 1
    return next(numbers)


def draw_all(what: list[str]) -> list[int]:
    """Return a number for each."""
    return [next(numbers) for _ in what]


class One(Task):
    """Draws a number, and sometimes one more; keeps the last of each key, and counts all records under one key."""

    records = Input(asked)
    draw = Call(draw)
    drawn = Output(drawn)
    last = Store("last", key=utf8, value=int64)
    total = Store("total", key=utf8, value=int64)

    async def process(self, record: Record[str, str]) -> None:
        """Draw. The total is read before the last call, and so by many records at a time."""
        number = await self.draw(record.value)
        total = self.total.get("all", 0)
        more = await self.draw(record.value) if number % 3 == 0 else 0
        self.total.put("all", total + 1)
        self.last.put(record.key, number)
        self.drawn.send(record.key, [record.value, number, more, total])


class Two(Task):
    """Draws in batches."""

    records = Input(drawn)
    draw = BatchCall(draw_all, min=4, max=8)
    out = Output(out)
    last = Store("last", key=utf8, value=int64)

    async def process(self, record: Record[str, list[Any]]) -> None:
        """Draw one more."""
        number = await self.draw(record.value[0])
        self.last.put(record.key, number)
        self.out.send(record.key, [*record.value, number])


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("seed", range(3))
def test_each_record_takes_effect_once_with_the_results_of_one_attempt(mode: Mode, seed: int) -> None:
    """State and outputs hold the same numbers, through crashes of both stages; no output was made twice otherwise."""
    kit = Kit(Job("draws", [One, Two], partitions=1 + seed % 2, mode=mode))
    for number in range(RECORDS):
        kit.feed(asked, f"k{number % 7}", str(number))
    kit.run(crashes=20, seed=seed)
    found = [record.value for record in kit.outputs(out)]
    by_record = {int(value[0]): value for value in found}
    assert len(found) == len(by_record) == RECORDS
    one, two = kit.state(One.last), kit.state(Two.last)
    for number in range(RECORDS - 7, RECORDS):
        key = f"k{number % 7}"
        assert (one[key], two[key]) == (by_record[number][1], by_record[number][-1])
    for partition in range(1 + seed % 2):  # each has seen the total of the record before it
        totals = [by_record[n][3] for n in range(RECORDS) if kit_partition(kit, n) == partition]
        assert totals == list(range(len(totals)))


def kit_partition(kit: Kit, number: int) -> int:
    """Return the partition of a record."""
    return next(r.partition for r in kit.outputs(out) if r.value[0] == str(number))


def test_outputs_and_state_do_not_depend_on_when_calls_return() -> None:
    """Records come out in the order of the input, though their calls return in another."""
    kit = Kit(Job("draws", [One]))
    for number in range(RECORDS):
        kit.feed(asked, f"k{number}", str(number))
    kit.run()
    assert [record.value[0] for record in kit.outputs(drawn)] == [str(number) for number in range(RECORDS)]


def test_a_deterministic_task_calls_no_second_time_for_what_is_recorded() -> None:
    """A task that dies after its outputs were seen makes them again without a call."""
    calls.clear()
    kit = Kit(Job("draws", [One], mode="deterministic"))
    for number in range(20):
        kit.feed(asked, "k", str(number))
    while len(kit.outputs(drawn)) < 20:
        kit.process()
        kit.now_ms += 1
    made = dict(calls)
    before = kit.pairs(drawn)
    kit.crash(One)
    kit.run()
    assert kit.pairs(drawn) == before
    assert dict(calls) == made


attempts: Counter[str] = Counter()


async def fails(what: str) -> str:
    """Fail for some."""
    attempts[what] += 1
    if what == "twice" and attempts[what] < 3:
        raise OSError("not yet")
    if what == "bad":
        raise OSError("never")
    return what


class Failing(Task):
    """Writes before and after a call."""

    records = Input(asked, errors=DeadLetter(letters))
    ask = Call(fails, attempts=3)
    seen = Store("seen", key=utf8, value=utf8)
    out = Output(out)

    async def process(self, record: Record[str, str]) -> None:
        """Ask."""
        self.seen.put(record.value, "before")
        self.out.send(record.key, "before " + record.value)
        self.out.send(record.key, await self.ask(record.value))


class Stopping(Failing):
    """The same, and an error stops it."""

    records = Input(asked)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_record_whose_call_has_failed_leaves_nothing_but_its_letter(mode: Mode) -> None:
    """A call that fails is made again; after the last attempt CallError says what failed."""
    attempts.clear()
    kit = Kit(Job("asks", [Failing], mode=mode))
    for what in ("good", "bad", "twice"):
        kit.feed(asked, "k", what)
    kit.run()
    values = [record.value for record in kit.outputs(out)]
    assert values == ["before good", "good", "before twice", "twice"]
    assert kit.state(Failing.seen) == {"good": "before", "twice": "before"}
    (letter,) = kit.outputs(letters)
    assert dict(letter.headers)["grete.error"] == b"CallError: the call of fails failed: OSError: never"
    assert attempts == {"good": 1, "bad": 3, "twice": 3}


def test_a_record_whose_call_has_failed_stops_the_task() -> None:
    """The error names the record and the line that awaited."""
    kit = Kit(Job("asks", [Stopping]))
    kit.feed(asked, "k", "bad")
    with pytest.raises(TaskError, match=r"offset 0, record 0: CallError: the call of fails failed: OSError: never \("):
        kit.run()


class Side(Task):
    """Makes two calls at a time, catches an error, and sets a timer."""

    records = Input(asked)
    ask = Call(fails, attempts=1)
    timers = Timers()
    out = Output(out)

    async def process(self, record: Record[str, str]) -> None:
        """Ask twice."""
        first, second = self.ask("bad"), self.ask(record.value)
        try:
            await first
        except CallError as error:
            self.out.send(record.key, str(error)[-5:])
        self.out.send(record.key, await second)
        self.timers.schedule(record.timestamp + 10, record.key)

    def on_timer(self, timer: Timer) -> None:
        """Say so."""
        self.out.send(timer.key, "timer")


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_calls_of_a_record_run_side_by_side_and_timers_wait_for_its_turn(mode: Mode) -> None:
    """A timer is set when its record takes effect; event time moves in the order of records."""
    kit = Kit(Job("asks", [Side], mode=mode))
    for number, what in enumerate(("a", "b")):
        kit.feed(asked, what, what, timestamp=1_000 + 100 * number)
    kit.run()
    assert [record.value for record in kit.outputs(out)] == ["never", "a", "never", "b", "timer"]
