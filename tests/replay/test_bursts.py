"""Slices of timers in deterministic mode (E10): results are those of one call, and a replay of history makes them."""

import pytest

from grete import Input, Job, Output, Record, Task, Timer, Timers, Topic, int64, utf8
from grete.core.graph.task_topology import wire
from grete.errors import TaskError
from grete.execution.task_code import firing
from grete.execution.timing import timers
from grete.protocol.changelog import InputDecision
from grete.replay.replay import replay
from grete.settings import Settings
from grete.state.read.recorded_task import recorded_task
from grete.testing import Kit

SECOND = 1_000
LINES = Topic("lines", key=utf8, value=int64)
TICKS = Topic("ticks", key=utf8, value=int64)
OUT = Topic("out", key=utf8, value=int64)


class Ticks(Task):
    """Each record sets timers, a second apart, and says so."""

    lines = Input(LINES)
    timers = Timers()
    out = Output(TICKS)

    def process(self, record: Record[str, int]) -> None:
        """Set them."""
        self.out.send("set", record.value)
        for number in range(record.value):
            self.timers.schedule(record.timestamp + number * SECOND, record.key)

    def on_timer(self, timer: Timer) -> None:
        """Say it."""
        self.out.send(timer.key, timer.at)


class Tocks(Task):
    """Sets a timer of its own for each tick, by the event time of the stage before."""

    ticks = Input(TICKS)
    timers = Timers()
    out = Output(OUT)

    def process(self, record: Record[str, int]) -> None:
        """Set it."""
        self.timers.schedule(record.timestamp + SECOND // 2, f"{record.key} {record.value}")

    def on_timer(self, timer: Timer) -> None:
        """Say where event time is, which is the same whatever a commit has cut."""
        self.out.send(timer.key, timer.at)


JOB = Job("bursts", stages=[Ticks, Tocks], mode="deterministic")


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two timers fire in a call."""
    monkeypatch.setattr(firing, "SLICE_TIMERS", 2)


def run(crashes: int) -> Kit:
    """Return a kit that has run bursts: rows behind them are in the same decision."""
    kit = Kit(JOB, settings=Settings(uncommitted_state_bytes_max=30_000, batch_bytes_max=2_000))
    for numbers in ((0, 1, 2, 3), (4, 5)):
        for number in numbers:
            kit.feed(LINES, "a", 20, timestamp=number * 100 * SECOND)
            kit.feed(LINES, "b", 5, timestamp=number * 100 * SECOND + 1)
        kit.run(crashes=crashes, seed=crashes)
        kit.advance(100)
    return kit


@pytest.mark.usefixtures("slices")
def test_results_are_those_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are killed between any two steps, and a commit ends a decision anywhere."""
    cut = run(crashes=5).pairs(OUT)
    monkeypatch.setattr(firing, "SLICE_TIMERS", 1_000_000)
    whole = run(crashes=0).pairs(OUT)
    assert len(whole) > 6 * 20
    assert cut == whole


@pytest.mark.usefixtures("slices")
def test_a_decision_that_a_commit_has_ended_is_made_again() -> None:
    """Its rows up to there at its times, the others at those of the next one; from the genesis and from a commit."""
    kit = run(crashes=0)
    decisions = recorded_task(kit._log, wire(JOB.topology(), 0, 0).changelog).decisions
    assert [each.rows is None for each in decisions if isinstance(each, InputDecision)] == [True, False, False]
    whole = replay(JOB, kit._log, Settings())
    assert (whole.records, whole.difference, whole.halted) == (12, None, None)
    later = replay(JOB, kit._log, Settings(), since=whole.restarts[0])
    assert (later.difference, later.halted) == (None, None)


class Again(Task):
    """A timer sets the next one for its own time, or a ms later."""

    lines = Input(LINES)
    timers = Timers()

    def process(self, record: Record[str, int]) -> None:
        """Begin."""
        self.timers.schedule(record.timestamp, f"{record.value}")

    def on_timer(self, timer: Timer) -> None:
        """Set the next one."""
        self.timers.schedule(timer.at + int(timer.key), timer.key)


@pytest.mark.parametrize(("step", "said"), [(0, "for ever"), (1, "1.0 ms apart, and about")])
def test_a_row_that_never_ends_is_refused_across_slices(monkeypatch: pytest.MonkeyPatch, step: int, said: str) -> None:
    """A count goes on from slice to slice, in deterministic mode as in others."""
    monkeypatch.setattr(timers, "AGAIN_TIMERS", 40)
    monkeypatch.setattr(firing, "SLICE_TIMERS", 10)
    kit = Kit(Job("again", stages=[Again], mode="deterministic"))
    kit.feed(LINES, "a", step, timestamp=0)
    kit.feed(LINES, "b", step, timestamp=1 << 40)
    with pytest.raises(TaskError, match=said):
        kit.run()
