"""Timers that set one another: those that would never end are refused, those that catch up are not."""

import pytest

from grete import Input, Job, Record, Task, Timer, Timers, Topic, utf8
from grete.errors import TaskError
from grete.execution import timers as module
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
    monkeypatch.setattr(module, "AGAIN_TIMERS", 100)
    monkeypatch.setattr(Endless, "ways", ways)
    rig = Rig(Job("j", stages=[Endless]))
    with pytest.raises(TaskError, match="they would fire for ever"):
        rig.rows("lines", [(None, b"", 10), (None, b"", 20)])


def test_a_timer_that_catches_up_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer a minute, and event time that jumps by months: each is later than the one before, and all fire."""
    monkeypatch.setattr(module, "AGAIN_TIMERS", 100)
    rig = Rig(JOB)
    fired = run(rig, ("set -900 again", -1_000), ("", 1_000))
    assert [at for _, at in fired] == [*range(-900, 101, 30), 120]
