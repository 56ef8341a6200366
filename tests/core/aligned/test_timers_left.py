"""Timers that are due and have not fired come before early frames; a checkpoint and a stop may come between (E10)."""

from grete.core import actions as do
from grete.core import events as on
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, Log, Producer


def waiting() -> tuple[Scenario, Producer, Producer]:
    """Return a task with timers left, and a frame of its open checkpoint 2 that waits for them."""
    task, a0, a1 = running()
    a0.mark(1)
    a0.send(2, "waits")
    a1.send(1, "moves time")
    task.read()
    task.step(on.Fired(10, left=True))
    a1.mark(1)
    task.read()
    return task, a0, a1


def test_a_checkpoint_closes_between_two_slices() -> None:
    """Its markers have come, and nothing of it waits: it has what has fired so far. The next one's frame waits."""
    task, _, _ = waiting()
    assert (task.committed[1], task.open) == (["moves time"], [])
    task.step(on.Fired(10, left=True))
    assert task.open == []
    task.step(on.Fired(10, left=False))
    assert task.open == ["waits"]


def test_a_checkpoint_with_a_frame_that_waits_does_not_close() -> None:
    """It would be committed without the frame: it closes behind the last slice."""
    task, a0, a1 = waiting()
    a0.mark(2)
    a1.mark(2)
    task.read()
    assert task.core.frozen == 1
    task.step(on.Fired(10, left=False))
    assert task.committed[2] == ["waits"]


def test_a_stop_does_not_wait_for_the_timers() -> None:
    """Records that wait for timers, and the timers' work since the last commit, come again at the next start (R6)."""
    task, _, _ = waiting()
    task.step(on.Stop())
    assert task.exit == do.Exit("stopped at checkpoint 1")


def test_a_checkpoint_whose_frames_wait_for_calls_does_not_close() -> None:
    """They were taken for processed, and have no turn before the last slice; it had begun to close when that came."""
    task, a0, a1 = running()
    a0.send(1, "waits")
    a0.mark(1)
    a1.mark(1)
    task.hold.add(do.FlushOutputs)
    task.read()
    assert not task.core.at_rest
    task.step(on.Fired(10, left=True, waits=True))
    assert (task.core.at_rest, task.core.frozen) == (True, 0)
    task.hold.clear()
    task.held.clear()  # the driver does not do it
    task.step(on.Fired(10, left=False))
    assert task.committed[1] == ["waits"]


def test_a_stop_at_least_once_does_not_wait_for_frames_behind_timers() -> None:
    """They come again at the next start; without the timers it would close its checkpoint first."""
    log = Log()
    a0 = Producer(log, A0)
    a0.rollback_marker(0)
    task = Scenario(log, aligned=False).start()
    a0.send(1, "waits")
    task.read()
    task.step(on.Fired(10, left=True, waits=True))
    frozen = task.core.frozen
    task.step(on.Stop())
    assert task.exit == do.Exit(f"stopped at checkpoint {frozen}")
