"""Deterministic sinks without releases, stepped by hand: what leaves when, and what a commit waits for (D5)."""

from grete.core import actions as do
from grete.core import events as on
from grete.protocol.changelog import ChangelogType
from tests.core.deterministic.scenario import Logical, Writer
from tests.core.deterministic.test_task import ALONE, kinds
from tests.core.streams import A0, SINK, Log


def test_sequenced_outputs_leave_without_the_changelog() -> None:
    """Outputs of a task with channels leave at once; nothing is appended for them (D5)."""
    log = Log()
    (b0, partition), (b1, _) = SINK.channels
    Writer(log, b1, partition).progress(10_000)
    task, writer = Logical(log, SINK, sink=True, releases=False).start(), Writer(log, b0, partition)
    appended = len(kinds(task))
    writer.send(("x", 100, A0), ("y", 110, A0))
    writer.progress(200)
    task.read()
    assert (task.outside, len(kinds(task))) == (["x", "y"], appended)


def test_a_source_lets_out_what_is_decided_on() -> None:
    """Its outputs wait for their decision, and for the proof that it is valid (D2, C3)."""
    task = Logical(Log(), ALONE, sink=True, releases=False).start()
    task.hold = {do.AppendChangelog}
    task.take("x")
    assert task.outside == []
    task.hold = set()
    task.release()
    assert task.outside == ["x"]


def test_a_commit_waits_for_sequenced_outputs() -> None:
    """They will not be made again: they must stand outside first (A7)."""
    task = Logical(Log(), ALONE, sink=True, releases=False).start()
    task.tick(100)
    commits = kinds(task).count(ChangelogType.COMMIT)
    task.acks = False
    task.take("x")
    task.tick(100)
    (produced,) = task.all(do.Produce)
    assert (produced.count, kinds(task).count(ChangelogType.COMMIT)) == (1, commits)
    task.step(on.Acked(produced.token))
    assert kinds(task).count(ChangelogType.COMMIT) == commits + 1
