"""The cores' common port: both answer drivers and workers, each in the terms of its mode."""

from functools import partial

from grete.core import actions as do
from grete.core import events as on
from grete.core.ports import Core
from tests.core.aligned.test_deterministic_channel import alone
from tests.core.deterministic.scenario import Logical, inner
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, A1, SOURCE, Log


def asked(core: Core) -> tuple[bool, int, list[tuple[int, int]], bool, list[int]]:
    """Return whether a core waits for tasks, how far it and its channels are, what it holds, who can roll it back."""
    inputs = core.inputs
    channels = sorted(inputs.reached_by_channel())
    return core.waits_for_tasks, core.reached_t, channels, inputs.holds_input, list(inputs.rollback_causes())


def test_an_aligned_task_waits_for_markers() -> None:
    """It has come as far as its last checkpoint, each channel as far as its last marker: ids are times in ms (A6)."""
    task, a0, a1 = running()
    assert asked(task.core) == (True, 0, [(A0, 0), (A1, 0)], False, [])
    a0.send(1, "x")
    a1.send(2, "early")
    a1.mark(1)
    task.read()
    assert asked(task.core) == (True, 0, [(A0, 0), (A1, 1_000)], True, [A0])
    a0.mark(1)
    task.read()
    assert asked(task.core) == (True, 1_000, [(A0, 1_000), (A1, 1_000)], True, [A1])
    task.commit(2, a0, a1)
    assert asked(task.core) == (True, 2_000, [(A0, 2_000), (A1, 2_000)], False, [])


def test_a_deterministic_producer_rolls_no_aligned_task_back() -> None:
    """Its records are held until a checkpoint has them, and it takes none back; its channel has no markers (A2b)."""
    task, a0, _ = alone()
    a0.send(("x", 100, A0))
    task.read()
    assert asked(task.core) == (True, 1_000_000, [], True, [])  # it began at 1,000 ms of the log


def test_at_least_once_no_task_waits_for_another() -> None:
    """It commits by its own timer, whatever its producers do (1.5)."""
    assert not Scenario(Log(), aligned=False).start().core.waits_for_tasks


def test_a_deterministic_task_waits_for_the_time_of_its_channels() -> None:
    """It has come as far as the channel that is the furthest behind, and holds what is ahead of that (D1)."""
    task, a0, a1 = inner()
    assert asked(task.core) == (True, -1, [(A0, -1), (A1, -1)], False, [])
    a0.send(("x", 100, A0))
    a1.progress(60)
    task.read()
    assert asked(task.core) == (True, 60, [(A0, 99), (A1, 60)], True, [])
    a1.progress(200)
    task.read()
    assert asked(task.core) == (True, 99, [(A0, 99), (A1, 200)], False, [])
    task.step(on.Stop())
    assert not task.core.waits_for_tasks


def test_a_deterministic_source_waits_for_no_task() -> None:
    """It has no channel that could be behind."""
    assert asked(Logical(Log(), SOURCE).start().core) == (True, -1, [], False, [])


def test_an_aligned_task_is_at_rest_between_records_and_checkpoints() -> None:
    """Not while a frame is processed, nor while the outputs of a checkpoint are flushed."""
    task, a0, a1 = running()
    at_rest = []
    for send, held in ((partial(a0.send, 1, "x"), do.Process), (partial(a0.mark, 1), do.FlushOutputs)):
        task.hold.add(held)
        a1.mark(1)
        send()
        task.read()
        at_rest.append(task.core.at_rest)
        task.release()
        at_rest.append(task.core.at_rest)
    assert at_rest == [False, True, False, True]
