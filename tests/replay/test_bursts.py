"""Slices of timers (E10): in deterministic mode results are those of one call, and a replay and an audit make them."""

from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8
from grete.core.graph.task_topology import wire
from grete.errors import ConfigError, TaskError
from grete.execution.task_code import firing
from grete.execution.timing import timers
from grete.ports import JobLogReader
from grete.protocol.changelog import InputDecision
from grete.replay.audit import followed
from grete.replay.audit.followed import AuditBegun, FollowedAudit
from grete.replay.audit.steps import AuditStep
from grete.replay.determinism.replay import replay
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
    monkeypatch.setattr(timers, "ENDLESS_TIMERS", 40)
    monkeypatch.setattr(firing, "SLICE_TIMERS", 10)
    kit = Kit(Job("again", stages=[Again], mode="deterministic"))
    kit.feed(LINES, "a", step, timestamp=0)
    kit.feed(LINES, "b", step, timestamp=1 << 40)
    with pytest.raises(TaskError, match=said):
        kit.run()


TOTALS = Topic("totals", key=utf8, value=int64)


class Counts(Task):
    """A record sets timers, a second apart; each counts those before it."""

    lines = Input(LINES)
    timers = Timers()
    counts = Store("counts", key=utf8, value=int64)
    out = Output(TOTALS)
    added = 1  # by a timer

    def process(self, record: Record[str, int]) -> None:
        """Set them."""
        for number in range(record.value):
            self.timers.schedule(record.timestamp + number * SECOND, record.key)

    def on_timer(self, timer: Timer) -> None:
        """Count."""
        count = self.counts.get(timer.key, 0) + self.added
        self.counts.put(timer.key, count)
        self.out.send(timer.key, count)


def refused(audit: FollowedAudit) -> str:
    """Return the reason for which the next step is refused; empty: it is not there yet."""
    try:
        assert audit.look() is None
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("slices")
def test_an_audit_compares_around_a_commit_within_a_burst(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step from before a burst to behind it, and one that begins within it, find what is wrong and nothing else.

    A step that ends within it is refused: a commit has no count of the timers that have fired.
    """
    monkeypatch.setattr(followed, "know_starts", lambda *_: None)  # a kit's log has no metadata
    monkeypatch.setattr(followed, "output_counts", lambda *_: {"totals": 1})
    job, settings = Job("counted", stages=[Counts]), Settings(checkpoint_interval_ms=100)

    def begun(name: str) -> FollowedAudit:
        log = cast(JobLogReader, kit._log)  # but for the metadata, which the two above have replaced
        audit = audits.enter_context(FollowedAudit(job, log, settings, tmp_path / name, 1.0))
        assert isinstance(audit.look(), AuditBegun)
        return audit

    with ExitStack() as audits, Kit(job, settings=settings) as kit:
        kit.feed(LINES, "a", 20, timestamp=0)
        kit.run()
        kit.advance(200)
        before = begun("before")
        kit.feed(LINES, "b", 1, timestamp=100 * SECOND)
        while not (why := refused(before)):
            kit.step()
            kit.now_ms += 40
        assert "closed while many timers were due" in why
        within, wrong = begun("within"), begun("wrong")
        assert 0 < kit.state(Counts.counts)["a"] < 20
        kit.run()
        kit.advance(200)
        for audit in (before, within):
            step = audit.look()
            assert isinstance(step, AuditStep)
            assert (step.caught_up, step.keys > 20, step.differences) == (True, True, [])
        monkeypatch.setattr(Counts, "added", 2)
        step = wrong.look()
        assert isinstance(step, AuditStep)
        assert [each.key for each in step.differences] == [b"a", b"b"]
