"""The graceful stop: a source closes once more, the others wait for their alignment (R6)."""

from grete.core import actions as do
from grete.core import events as on
from grete.core.lifecycle import TaskStatus
from grete.protocol.envelope import MessageType
from tests.core.scenario import Scenario, running
from tests.core.streams import OUT, SOURCE, Log, T


def test_a_source_closes_commits_and_exits() -> None:
    """SIGTERM: what was read is closed as a checkpoint at once, committed and marked; then exit 0 (R6)."""
    task = Scenario(Log(), SOURCE).start()
    task.tick(10)
    task.take_external("x")
    task.emit(T, "out")
    task.step(on.Stop())
    assert (task.core.status, task.exit) == (TaskStatus.STOPPED, do.Exit("stopped at checkpoint 1001"))
    assert task.committed[1_001] == ["x"]
    assert [(h.type, h.checkpoint_id) for h in task.sent(T)][-3:] == [
        (MessageType.FRAME, 1_001),
        (MessageType.MARKER, 1_001),
        (MessageType.MARKER, 1_001),  # again: it is the last
    ]


def test_a_stopping_source_takes_nothing_more() -> None:
    """From the stop on a source admits nothing: its last checkpoint ends there (R6)."""
    task = Scenario(Log(), SOURCE).start()
    task.hold.add(do.AppendChangelog)
    task.step(on.Stop())
    assert not task.core.wants_input
    task.release()
    assert task.exit is not None


def test_a_stop_during_a_commit_closes_what_came_since() -> None:
    """The checkpoint in flight is finished, then the rest is closed as one more (R6, A8)."""
    task = Scenario(Log(), SOURCE).start()
    task.hold.add(do.AppendChangelog)
    task.take_external("x")
    task.tick(100)
    task.take_external("y")
    task.step(on.Stop())
    assert task.exit is None
    task.release()
    assert (task.committed[1_100], task.committed[1_101]) == (["x"], ["y"])
    assert task.exit is not None


def test_the_last_markers_are_acknowledged_before_the_exit() -> None:
    """Otherwise the tasks downstream would wait for an alignment that no producer completes (R6)."""
    task = Scenario(Log(), SOURCE).start()
    task.acks = False
    task.step(on.Stop())
    committed = task.core.commits.committed
    assert (committed is not None and committed.checkpoint_id, task.exit) == (1_001, None)
    task.ack()
    assert task.exit is not None


def test_a_stop_while_starting_is_remembered() -> None:
    """A source that is told to stop before it runs still commits once and exits (R6)."""
    task = Scenario(Log(), SOURCE)
    task.hold.add(do.AppendChangelog)
    task.start()
    task.step(on.Stop())
    assert task.exit is None
    task.release()
    assert (task.exit is not None, task.core.frozen) == (True, 1_000)


def test_an_inner_task_waits_for_its_alignment() -> None:
    """The open write batch is committed when the markers arrive; then the task exits (R6)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    task.read()
    task.step(on.Stop())
    assert not task.all(do.Exit)
    assert task.core.wants_input
    a0.mark(1)
    a1.mark(1)
    task.read()
    assert task.exit == do.Exit("stopped at checkpoint 1")
    assert task.committed[1] == ["x"]
    assert task.sent(OUT[0])[-1].type is MessageType.MARKER


def test_an_inner_task_waits_for_the_checkpoints_in_its_buffer() -> None:
    """Early records of checkpoints that have begun are part of what is left to commit (R6)."""
    task, a0, a1 = running()
    a0.mark(1)
    a0.send(2, "early")
    task.read()
    task.step(on.Stop())
    a1.mark(1)
    task.read()
    assert not task.all(do.Exit)
    a0.mark(2)
    a1.mark(2)
    task.read()
    assert task.exit == do.Exit("stopped at checkpoint 2")
    assert task.state == ["early"]


def test_an_inner_task_ends_with_what_is_complete_behind_a_producer_that_has_stopped() -> None:
    """A marker that comes again is the last of its producer: what was sent beyond it is left to the next start (R6)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.mark(1)
    a0.send(2, "y")
    a0.mark(2)
    task.read()
    task.step(on.Stop())
    a1.mark(1)
    task.read()
    assert task.committed[1] == ["x"]
    assert not task.all(do.Exit), "a-1 may close 2, too"
    a1.mark(1)
    task.read()
    assert task.exit == do.Exit("stopped at checkpoint 1")
    assert [h.checkpoint_id for h in task.sent(OUT[0]) if h.type is MessageType.MARKER] == [1, 1]
    after = task.successor().start()
    a1.mark(2)
    after.read()
    assert after.state == ["x", "y"]


def test_a_producer_that_starts_again_has_not_stopped() -> None:
    """Its rollback marker says so (R6)."""
    task, a0, a1 = running()
    a0.mark(1)
    a1.mark(1)
    a1.mark(1)
    a0.send(2, "y")
    a1.rollback_marker(1)
    task.read()
    task.step(on.Stop())
    assert not task.all(do.Exit)
    a0.mark(2)
    a1.mark(2)
    task.read()
    assert task.exit == do.Exit("stopped at checkpoint 2")
    assert task.state == ["y"]


def test_an_inner_task_with_nothing_open_exits_at_once() -> None:
    """Nothing processed since the last commit: nothing to wait for (R6)."""
    task, *_ = running()
    task.step(on.Stop())
    assert task.exit == do.Exit("stopped at checkpoint 0")
    assert not task.core.wants_input


def test_what_a_stop_leaves_is_taken_up_by_the_next_start() -> None:
    """A stop is a crash at a good moment: the successor goes on without a loss or a repeat (R6)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    task.read()
    task.step(on.Stop())
    a0.send(2, "y")
    after = task.successor().start()
    a0.mark(2)
    a1.mark(2)
    after.read()
    assert after.state == ["x", "y"]
