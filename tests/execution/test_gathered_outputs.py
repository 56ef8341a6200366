"""Exactly once, a source's outputs to the tasks behind gather between two checkpoints; none is late for one (A8)."""

import pytest

from grete.execution.limits import GATHERED_MS_MAX, GATHERED_PARTS, GATHERED_ROWS
from grete.protocol.frames import frame_count
from tests.core.streams import IN, SOURCE
from tests.execution.driving import Driven

INTERVAL_MS = 1_000
PACE_MS = INTERVAL_MS // GATHERED_PARTS


def source(**changes: int | str) -> Driven:
    """Return a running source that gathers; nothing that it has sent."""
    task = Driven(SOURCE, gathers=True, **{"checkpoint_interval_ms": INTERVAL_MS, **changes}).start()  # type: ignore[arg-type]  # settings of many types
    task.trace.clear()
    return task


def feed(task: Driven, *values: bytes) -> None:
    """Let records come, and the task work as far as it can without time."""
    task.append(IN, *values)
    task.run()


def frames(task: Driven) -> int:
    """Return the number of frames that were sent, to all partitions."""
    return sum(step.what == "output" for step in task.trace)


def test_records_that_come_one_by_one_leave_in_one_frame() -> None:
    """A frame leaves when the first of its records has waited for a part of the interval, and the driver says when."""
    task = source()
    for number in range(5):
        feed(task, b"%d" % number)
        task.now_ms += 4
    assert task.runner.processed == ["0", "1", "2", "3", "4"]
    assert frames(task) == 0
    assert task.driver.due_in_ms() == PACE_MS - 20
    task.now_ms += PACE_MS - 20
    task.run()
    assert frames(task) == len(SOURCE.outputs)
    rows = [row.value or b"" for row in task.log.read(SOURCE.outputs[0], 0, 1 << 20)]
    assert frame_count(rows[-1]) == 5
    assert task.driver.due_in_ms() > PACE_MS  # nothing waits, and the driver does not spin


def test_a_checkpoint_takes_what_has_gathered() -> None:
    """The records of a checkpoint leave before its freeze, with its id, however short they have waited (A3, A8)."""
    task = source()
    task.now_ms += INTERVAL_MS - task.now_ms % INTERVAL_MS - 1
    feed(task, b"x")
    assert frames(task) == 0
    task.now_ms += 1
    task.run()
    sent = [step.what for step in task.trace if step.what in ("output", "freeze")]
    assert sent == ["output"] * len(SOURCE.outputs) + ["freeze"]


@pytest.mark.parametrize("value", [b"x", b"x" * 40_000])
def test_a_source_that_is_behind_waits_for_nothing(value: bytes) -> None:
    """Many records, or many bytes, at a time are the input of a task that is behind: they leave at once."""
    task = source()
    feed(task, *[value] * (GATHERED_ROWS if len(value) == 1 else 1))
    assert frames(task) >= len(SOURCE.outputs)


def test_a_stop_waits_for_nothing() -> None:
    """The last records leave with the checkpoint that a stop closes (R6)."""
    task = source()
    feed(task, b"x")
    task.driver.stop()
    task.run()
    assert frames(task) == len(SOURCE.outputs)
    assert task.driver.exit is not None


def test_at_least_once_nothing_gathers() -> None:
    """Its outputs are seen at once, and not with a checkpoint."""
    task = source(processing_guarantee="at-least-once")
    feed(task, b"x")
    assert frames(task) == len(SOURCE.outputs)


def test_a_short_interval_has_a_short_pace() -> None:
    """The pace is a part of the interval, and never more than the bound."""
    task = source(checkpoint_interval_ms=100_000)
    feed(task, b"x")
    assert task.driver.due_in_ms() == GATHERED_MS_MAX
    task = source(checkpoint_interval_ms=200)
    feed(task, b"x")
    assert task.driver.due_in_ms() <= 200 / GATHERED_PARTS
