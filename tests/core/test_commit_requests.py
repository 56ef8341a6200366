"""A checkpoint that the code of an aligned source asks for."""

from grete.core import actions as do
from grete.core import events as on
from tests.core.test_checkpoint_clock import closed, source


def test_a_request_of_the_code_closes_a_checkpoint_early_and_once() -> None:
    """One that comes while a commit is in flight waits for it; one without news has a checkpoint all the same."""
    task = source(idle_checkpoint_interval_ms=60_000)
    task.hold.add(do.AppendChangelog)
    task.step(on.Tick(task.mono_ms, requested=True))
    assert closed(task) == [1_000, 1_001]
    task.step(on.Tick(task.mono_ms, requested=True))
    assert closed(task) == [1_000, 1_001]
    task.release()
    task.tick(1)
    assert closed(task) == [1_000, 1_001, 1_002]
    task.release()
    task.tick(1)
    assert closed(task) == [1_000, 1_001, 1_002]
