"""The release of outputs to files and tables ahead of the commit, stepped by hand (D5)."""

import pytest

from grete.core import actions as do
from grete.protocol.changelog import ChangelogType
from tests.core.deterministic.scenario import Logical, Writer
from tests.core.deterministic.test_task import ALONE
from tests.core.streams import A0, SINK, SOURCE, Log

DECISION, LEASE = ChangelogType.INPUT_DECISION, ChangelogType.TIME_LEASE


def test_outputs_leave_once_their_time_is_whole() -> None:
    """A record goes as soon as every channel has passed it, its outputs only when nothing of its time can follow."""
    log = Log()
    (b0, partition), (b1, _) = SINK.channels
    other = Writer(log, b1, partition)
    other.progress(10_000)
    task, writer = Logical(log, SINK, early=True).start(), Writer(log, b0, partition)
    task.let_out.clear()
    writer.send(("x", 100, A0), ("y", 110, A0))
    task.read()
    assert (task.names, task.let_out) == (["x", "y"], [109])
    writer.progress(110)
    task.read()
    assert task.let_out == [109, 110]
    writer.progress(150)
    task.read()
    assert task.let_out == [109, 110], "nothing waits"


def test_what_a_predecessor_left_in_the_state_leaves_without_a_record() -> None:
    """The first time that passes makes the code run, which says what waits in its state."""
    log = Log()
    (b0, partition), (b1, _) = SINK.channels
    task, writers = Logical(log, SINK, early=True).start(), [Writer(log, b0, partition), Writer(log, b1, partition)]
    task.sink_t = 150
    for t in (100, 200, 300):
        for writer in writers:
            writer.progress(t)
        task.read()
    assert task.let_out == [100, 200]


def test_without_early_sinks_nothing_is_let_out() -> None:
    """A task whose files get checkpoints is asked for nothing."""
    log = Log()
    (b0, partition), (b1, _) = SINK.channels
    task = Logical(log, SINK).start()
    for producer in (b0, b1):
        Writer(log, producer, partition).progress(100)
    task.read()
    assert task.all(do.ReleaseToSinks) == []


def test_a_source_lets_out_what_is_validly_decided_on() -> None:
    """Its outputs wait for their input decision, and for the proof that it is valid (D2, C3)."""
    task = Logical(Log(), ALONE, early=True).start()
    task.hold = {do.AppendChangelog}
    task.take("x")
    assert (task.names, task.let_out) == (["x"], [])
    task.hold = set()
    task.release()
    assert task.let_out == [task.processed[-1][1]]


def test_a_successor_lets_out_what_it_replays() -> None:
    """Replayed decisions are valid: what is made again of each may leave at once, where the sink lacks it."""
    task = Logical(Log(), ALONE, early=True).start()
    task.take("x")
    task.take("y")
    times = [t for _, t, _ in task.processed]
    after = task.successor().start()
    assert (after.names, after.let_out) == (["x", "y"], times)


@pytest.mark.parametrize("early", [False, True])
def test_what_sinks_get_rests_on_decisions_that_survive_a_power_loss(*, early: bool) -> None:
    """In the log a power loss takes outputs with their decision. Files and tables keep theirs, so it is on disk first.

    So is the lease on the time that another task's outputs have waited for.
    """
    task = Logical(Log(), ALONE, early=early).start()
    task.take("x")
    behind = Logical(Log(), SOURCE, early=early).start()
    behind.tick(300)
    for each in (task, behind):
        appended = [a for a in each.all(do.AppendChangelog) if a.value[0] & 15 in (DECISION, LEASE)]
        assert appended
        assert all(action.sync is early for action in appended)
