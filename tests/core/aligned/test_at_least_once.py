"""The same engine with local commits: no alignment, no buffers, no rollback (1.5). What stays: A7, C and R1 to R3."""

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.errors import Fenced, Halted
from grete.protocol.envelope import MessageType
from tests.core.scenario import Scenario
from tests.core.streams import A0, A1, INNER, OUT, Log, Producer, T, frame


def local() -> tuple[Scenario, Producer, Producer]:
    """Return INNER in at-least-once mode, at checkpoint 1,000, and its producers."""
    log = Log()
    a0, a1 = Producer(log, A0), Producer(log, A1)
    a0.rollback_marker(0)
    a1.rollback_marker(0)
    task = Scenario(log, aligned=False).start()
    task.read()
    assert task.core.frozen == 1_000
    return task, a0, a1


def test_records_are_processed_as_they_come() -> None:
    """There are no checkpoint ids, no alignment and no buffer.

    Each record is processed at once, whatever checkpoint it carries (1.5).
    """
    task, a0, a1 = local()
    a0.send(5_000, "late checkpoint id")
    a1.send(1, "old checkpoint id")
    task.read()
    assert task.open == ["late checkpoint id", "old checkpoint id"]
    assert task.core.inputs.early.bytes == 0


def test_commits_go_by_the_timer() -> None:
    """Each task closes its own checkpoints once per interval, as a source does (1.5)."""
    task, a0, _ = local()
    a0.send(1, "x")
    task.read()
    assert task.core.due_in_ms(task.mono_ms) == 50
    task.tick(50)
    assert task.committed[1_100] == ["x"]


def test_no_markers_are_sent_or_heeded() -> None:
    """There is nothing to align (1.5)."""
    task, a0, a1 = local()
    a0.mark(7)
    a1.mark(7)
    task.read()
    task.tick(100)
    assert list(task.committed) == [0, 1_000, 1_100]
    assert {header.type for header in task.sent(OUT[0])} == {MessageType.ROLLBACK_MARKER}


def test_a_producers_rollback_marker_leads_to_repeats_not_to_a_rollback() -> None:
    """Processed records stay processed; the producer's repeats are processed again (1.5)."""
    task, a0, _ = local()
    a0.send(1, "x")
    task.read()
    a0.rollback_marker(0)
    a0.send(1, "x")
    task.read()
    assert (task.open, task.core.generation, task.core.seen["rollbacks"]) == (["x", "x"], 1, 0)


def test_a_rollback_marker_sets_generation_rollback_history_and_seq() -> None:
    """The channel goes on at the rollback marker's seq.

    A zombie's late records are rolled back, and a gap halts the task (1.5, R3).
    """
    task, a0, _ = local()
    a0.send(1, "x")
    a0.send(2, "y")
    task.read()
    a0.rollback_marker(1)
    task.log.append(T, frame(A0, 1, 2, 3, "of a zombie"))
    a0.send(2, "y again")
    task.read()
    assert task.open == ["x", "y", "y again"]
    task.log.append(T, frame(A0, 2, 2, 4, "after a gap"))
    with pytest.raises(Halted, match="expected seq 3"):
        task.read()


def test_a_rollback_marker_below_the_own_checkpoint_is_normal() -> None:
    """Checkpoints of different tasks have nothing to do with one another: no R < L halt (1.5)."""
    task, a0, _ = local()
    a0.rollback_marker(3)
    a0.send(4, "x")
    task.read()
    assert task.open == ["x"]


def test_commits_and_fencing_are_the_same() -> None:
    """A7 and C hold: a higher generation before the commit makes it invalid (1.5)."""
    task, a0, _ = local()
    a0.send(1, "x")
    task.read()
    task.hold.add(do.AppendChangelog)
    task.tick(100)
    task.log.claim(INNER, 2)
    with pytest.raises(Fenced):
        task.release()
    assert task.state == []


def test_a_restart_loses_nothing() -> None:
    """R1 and R2 hold: redo or restore, announce, go on from the commit's offsets (1.5)."""
    task, a0, a1 = local()
    a0.send(1, "x")
    task.read()
    task.tick(100)
    a1.send(1, "open")
    task.read()
    for same_host in (True, False):
        after = task.successor(same_host=same_host).start()
        assert after.state == ["x"]
        assert after.sent(OUT[0])[0].checkpoint_id >= 1_100
        after.read()
        assert after.open == ["open"]


def test_a_stop_commits_what_is_open() -> None:
    """A graceful stop closes by the timer's rule and exits 0 (R6, 1.5)."""
    task, a0, _ = local()
    a0.send(1, "x")
    task.read()
    task.step(on.Stop())
    assert (task.state, task.exit) == (["x"], do.Exit("stopped at checkpoint 1001"))
