"""A deterministic sink whose input is full gathers: a transaction costs as much for one batch as for many (D5)."""

from dataclasses import replace

from grete.core import actions as do
from grete.core import events as on
from grete.core.limits import GATHERED_BATCHES, SOURCE_BATCHES_MAX
from grete.protocol.changelog import ChangelogType
from tests.core.deterministic.scenario import Logical
from tests.core.streams import SOURCE, Log

ALONE = replace(SOURCE, outputs=())  # a source that only writes to the outside


def sink() -> Logical:
    """Return a source that is a sink, running."""
    return Logical(Log(), ALONE, sink=True).start()


def releases(task: Logical) -> int:
    """Return the number of releases that were appended."""
    return sum(append.value[0] & 15 == ChangelogType.OUTPUT_RELEASE for append in task.all(do.AppendChangelog))


def test_batches_behind_which_there_are_more_leave_together() -> None:
    """Sixteen of them, or fewer as soon as nothing follows."""
    task, names = sink(), "abcdefghijklmnop"
    assert len(names) == GATHERED_BATCHES < SOURCE_BATCHES_MAX
    for name in names[:-1]:
        task.take(name, more=True)
    assert (releases(task), task.outside) == (0, [])
    task.take(names[-1], more=True)
    assert (releases(task), task.outside) == (1, list(names))
    task.take("q", more=True)
    assert releases(task) == 1
    task.take("r")
    assert task.outside == [*names, "q", "r"]


def test_what_was_gathered_leaves_when_nothing_follows() -> None:
    """Whether more is there is a guess of the driver's: it says so when it was wrong."""
    task = sink()
    task.take("a", more=True)
    assert task.outside == []
    task.step(on.InputRead())
    assert task.outside == ["a"]


def test_a_checkpoint_does_not_wait_for_more() -> None:
    """No record is taken while a checkpoint is due, so nothing would follow (D4)."""
    task = sink()
    committed = task.core.frozen
    task.take("a", more=True)
    task.tick(2_000)
    assert task.outside == ["a"]
    task.tick(0)
    assert task.core.frozen > committed
