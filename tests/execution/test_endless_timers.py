"""Timers that set one another: those that would never end are refused, those that catch up are not."""

import pytest

from grete import Input, Job, Record, Task, Timer, Timers, Topic, utf8
from grete.errors import TaskError
from grete.execution.task_code import firing
from grete.execution.timing import timers as module
from tests.execution.harness import Rig
from tests.execution.test_timers import JOB, run

LINES = Topic("lines", key=utf8, value=utf8)


class Endless(Task):
    """``ways``: what on_timer sets, as (how much later, key), by turns."""

    lines = Input(LINES)
    timers = Timers()
    ways: tuple[tuple[int, str], ...] = ()
    count = 0

    def process(self, record: Record[str, str]) -> None:
        self.timers.schedule(record.timestamp, "")

    def on_timer(self, timer: Timer) -> None:
        later, key = self.ways[self.count % len(self.ways)]
        self.count += 1
        self.timers.schedule(timer.at + later, key)


@pytest.mark.parametrize(
    "ways", [((0, ""),), ((-1, ""),), ((0, "x"), (0, "")), ((1, "y"), (-1, ""))], ids=["own", "past", "turns", "about"]
)
def test_timers_that_set_one_another_for_ever_are_refused(
    monkeypatch: pytest.MonkeyPatch, ways: tuple[tuple[int, str], ...]
) -> None:
    """By their number: else the call would never end, and no commit or stop could come."""
    monkeypatch.setattr(module, "ENDLESS_TIMERS", 100)
    monkeypatch.setattr(Endless, "ways", ways)
    rig = Rig(Job("j", stages=[Endless]))
    with pytest.raises(TaskError, match="they would fire for ever"):
        rig.rows("lines", [(None, b"", 10), (None, b"", 20)])


@pytest.mark.parametrize(("step", "ahead"), [(1, 101_000_000), (1_000, 101_000_000_000)])
def test_a_row_of_too_many_timers_is_refused_with_its_values(
    monkeypatch: pytest.MonkeyPatch, step: int, ahead: int
) -> None:
    """A timer a ms, and a record that is days ahead: hundreds of millions would fire before the next record."""
    monkeypatch.setattr(Endless, "ways", ((step, "x"),))
    rig = Rig(Job("j", stages=[Endless]))
    with pytest.raises(
        TaskError, match=rf", {step:,}\.0 ms apart, and about 100,9\d\d,\d\d\d more .*event time is at {ahead}"
    ):
        rig.rows("lines", [(None, b"", 0), (None, b"", ahead)])


@pytest.mark.parametrize("slice_", [7, 1_000])
def test_a_row_within_the_bound_fires_whole(monkeypatch: pytest.MonkeyPatch, slice_: int) -> None:
    """Of 1,000 timers a ms apart, of two keys; the bound is reached by one more."""
    for name, value in (("ENDLESS_TIMERS", 10), ("FOLLOWING_TIMERS", 989)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(firing, "SLICE_TIMERS", slice_)
    monkeypatch.setattr(Endless, "ways", ((1, "x"),))

    def fired(last: int) -> int:
        rig = Rig(Job("j", stages=[Endless]))
        assert rig.processor.due is not None
        rig.processor.due.by_slices()
        rig.some_rows("lines", [(None, b"", 0), (None, b"", last)])
        while rig.processor.due.left:
            rig.processor.due.fire_slice()
        return int(rig.task.count)

    assert fired(999) == 1_001
    with pytest.raises(TaskError, match="more would follow before the next record"):
        fired(1_001)


def test_a_timer_that_catches_up_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer a minute, and event time that jumps by months: each is later than the one before, and all fire."""
    monkeypatch.setattr(module, "ENDLESS_TIMERS", 100)
    rig = Rig(JOB)
    fired = run(rig, ("set -900 again", -1_000), ("", 1_000))
    assert [at for _, at in fired] == [*range(-900, 101, 30), 120]
