"""The same engine with local commits: no alignment, no buffers, no rollback (1.5). What stays: A7, C and R1 to R3."""

import pytest

from framework.core import actions as do
from framework.core import events as on
from framework.errors import Fenced, Halted
from protocol.envelope import MessageType
from tests.core.scenario import A0, A1, INNER, OUT, Log, Producer, Scenario, T, frame


def local() -> tuple[Scenario, Producer, Producer]:
    """Return INNER in at-least-once mode, at version 1,000, and its producers."""
    log = Log()
    a0, a1 = Producer(log, A0), Producer(log, A1)
    a0.restore(0)
    a1.restore(0)
    task = Scenario(log, aligned=False).start()
    task.read()
    assert task.core.frozen == 1_000
    return task, a0, a1


def test_records_are_processed_as_they_come() -> None:
    """No labels, no barrier, no buffer: whatever version a record carries, it is processed at once (1.5)."""
    task, a0, a1 = local()
    a0.send(5_000, "late label")
    a1.send(1, "old label")
    task.read()
    assert task.open == ["late label", "old label"]
    assert task.core.inputs.early.bytes == 0


def test_commits_go_by_the_timer() -> None:
    """Each task closes its own versions once per interval, as a source does (1.5)."""
    task, a0, _ = local()
    a0.send(1, "x")
    task.read()
    assert task.core.due_in_ms(task.mono_ms) == 50
    task.tick(50)
    assert task.versions[1_100] == ["x"]


def test_no_markers_are_sent_or_heeded() -> None:
    """There is nothing to align (1.5)."""
    task, a0, a1 = local()
    a0.mark(7)
    a1.mark(7)
    task.read()
    task.tick(100)
    assert list(task.versions) == [0, 1_000, 1_100]
    assert {header.type for header in task.sent(OUT[0])} == {MessageType.RESTORE}


def test_a_producers_restore_leads_to_repeats_not_to_a_roll_back() -> None:
    """What was processed stays; what the producer makes anew is processed again (1.5)."""
    task, a0, _ = local()
    a0.send(1, "x")
    task.read()
    a0.restore(0)
    a0.send(1, "x")
    task.read()
    assert (task.open, task.core.generation, task.core.seen["roll backs"]) == (["x", "x"], 1, 0)


def test_a_restore_sets_generation_lineage_and_seq() -> None:
    """The channel goes on at the restore's seq; a zombie's late records are void; a gap halts (1.5, R3)."""
    task, a0, _ = local()
    a0.send(1, "x")
    a0.send(2, "y")
    task.read()
    a0.restore(1)
    task.log.append(T, frame(A0, 1, 2, 3, "of a zombie"))
    a0.send(2, "y again")
    task.read()
    assert task.open == ["x", "y", "y again"]
    task.log.append(T, frame(A0, 2, 2, 4, "after a gap"))
    with pytest.raises(Halted, match="expected seq 3"):
        task.read()


def test_a_restore_below_the_own_version_is_normal() -> None:
    """Versions of different tasks have nothing to do with one another: no R < L halt (1.5)."""
    task, a0, _ = local()
    a0.restore(3)
    a0.send(4, "x")
    task.read()
    assert task.open == ["x"]


def test_commits_and_fencing_are_the_same() -> None:
    """A7 and C hold: a higher generation before the commit makes it void (1.5)."""
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
    """R1 and R2 hold: redo or bootstrap, announce, go on from the commit's offsets (1.5)."""
    task, a0, a1 = local()
    a0.send(1, "x")
    task.read()
    task.tick(100)
    a1.send(1, "open")
    task.read()
    for same_host in (True, False):
        after = task.successor(same_host=same_host).start()
        assert after.state == ["x"]
        assert after.sent(OUT[0])[0].version >= 1_100
        after.read()
        assert after.open == ["open"]


def test_a_stop_commits_what_is_open() -> None:
    """A graceful stop closes by the timer's rule and exits 0 (R6, 1.5)."""
    task, a0, _ = local()
    a0.send(1, "x")
    task.read()
    task.step(on.Stop())
    assert (task.state, task.exit) == (["x"], do.Exit(0, "stopped at version 1001"))
