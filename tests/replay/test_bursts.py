"""Commits between slices of timers (E10): a replay of history, and an audit, make again what was made."""

import pytest

from grete import Input, Job, Output, Record, Task, Timer, Timers, Topic, int64, utf8
from grete.execution import firing
from grete.replay.replay import replay
from grete.settings import Settings
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
    for number in range(6):
        kit.feed(LINES, "a", 20, timestamp=number * 100 * SECOND)
        kit.feed(LINES, "b", 5, timestamp=number * 100 * SECOND + 1)
    kit.run(crashes=crashes, seed=crashes)
    kit.advance(100)
    return kit


@pytest.mark.usefixtures("slices")
def test_results_are_those_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are killed between any two steps, and a commit ends a decision anywhere."""
    cut = [[*map(tuple, ((r.key, r.value) for r in run(crashes).outputs(OUT)))] for crashes in (0, 30)]
    monkeypatch.setattr(firing, "SLICE_TIMERS", 1_000_000)
    whole = [(r.key, r.value) for r in run(0).outputs(OUT)]
    assert len(whole) > 6 * 20
    assert cut == [whole, whole]


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("crashes", [0, 30])
def test_a_decision_that_a_commit_has_ended_is_made_again(crashes: int) -> None:
    """Its rows up to there at its times, the others at those of the next one; from the genesis and from a commit."""
    kit = run(crashes)
    whole = replay(JOB, kit._log, Settings())
    assert (whole.difference, whole.halted) == (None, None)
    assert whole.records == 12
    for since in whole.restarts:
        later = replay(JOB, kit._log, Settings(), since=since)
        assert (later.difference, later.halted) == (None, None), since
