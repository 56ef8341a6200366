"""Outputs of a deterministic sink: one release at a time, each in one transaction with its outputs (D5)."""

from zlib import crc32

from grete.core import actions as do
from grete.protocol.changelog import (
    ChangelogType,
)
from tests.core.deterministic.scenario import OUTSIDE, Logical, Writer
from tests.core.deterministic.test_task import ALONE, kinds
from tests.core.streams import A0, SINK, Log


def sink() -> tuple[Logical, Writer]:
    """Return a sink, running, and one of its producers; the other one has announced a lot."""
    log = Log()
    (b0, partition), (b1, _) = SINK.channels
    Writer(log, b1, partition).progress(10_000)
    return Logical(log, SINK, sink=True).start(), Writer(log, b0, partition)


def test_outputs_leave_at_once_one_release_at_a_time() -> None:
    """Outputs made during a release wait for the next one; they wait for no commit (D5)."""
    task, b0 = sink()
    task.hold = {do.AppendChangelog}
    b0.send(("x", 100, A0))
    b0.progress(100)
    task.read()
    b0.send(("y", 110, A0))
    b0.send(("z", 120, A0))
    b0.progress(120)
    task.read()
    assert (task.outside, task.names) == ([], ["x", "y", "z"])
    task.hold = set()
    task.release()
    assert task.outside == ["x", "y", "z"]
    assert kinds(task)[-2:] == [ChangelogType.OUTPUT_RELEASE] * 2


def test_what_was_released_is_known_after_a_restart() -> None:
    """The releases since the last commit say up to where outputs are outside: made again, they are dropped (D5)."""
    task, b0 = sink()
    b0.send(("x", 100, A0), ("y", 110, A0))
    b0.progress(200)
    task.read()
    after = task.successor().start()
    assert after.core.start_up.fold.since.released == {OUTSIDE: 2}
    assert after.core.start_up.fold.since.released_digests == {OUTSIDE: [(2, crc32(b"xy"))]}
    after.tick(100)
    third = after.successor(nonce=b"a third process!").start()
    fold = third.core.start_up.fold
    assert (fold.since.released, fold.since.released_digests) == ({}, {})  # it is in the state since


def test_what_waits_at_a_freeze_leaves_with_the_commit() -> None:
    """It is in the committed state, so it will not be made again: it must leave with the commit (D5)."""
    task, b0 = sink()
    task.hold = {do.AppendChangelog}
    b0.send(("x", 100, A0))
    b0.progress(100)
    task.read()
    b0.send(("y", 110, A0))
    b0.progress(110)
    task.read()
    task.tick(100)
    task.hold = set()
    task.release()
    commits = [a for a in task.done if isinstance(a, do.AppendChangelog) and a.value[0] & 15 == ChangelogType.COMMIT]
    assert commits[-1].outputs == 1
    assert task.outside == ["x", "y"]


def test_a_source_that_is_a_sink_decides_and_releases_in_one_append() -> None:
    """One round trip for a job of one stage: the decision is right before the release of what it has made (D5)."""
    task = Logical(Log(), ALONE, sink=True).start()
    begin = len(task.done)
    task.take("x")
    appends = [action for action in task.done[begin:] if isinstance(action, do.AppendChangelog)]
    assert [append.value[0] & 15 for append in appends] == [ChangelogType.OUTPUT_RELEASE]
    assert [value[0] & 15 for value in appends[0].before][-1:] == [ChangelogType.INPUT_DECISION]
    assert task.outside == ["x"]
