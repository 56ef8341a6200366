"""Progress that the tasks of a process announce together (D1): an Announce each, and one message with all of them."""

from dataclasses import replace
from itertools import pairwise

import pytest

from grete.core import actions as do
from grete.core.deterministic.task import DeterministicCore
from grete.errors import Halted
from grete.protocol.control import encode_joint_progress
from tests.core.aligned.test_deterministic_channel import ALONE, alone, last_commit
from tests.core.deterministic.scenario import Logical, Writer
from tests.core.scenario import LIMITS
from tests.core.streams import A0, A1, INNER, SOURCE, Log, T

PACE_MS = 20


def announcing() -> Logical:
    """Return a source that announces with others, running."""
    task = Logical(Log(), SOURCE)
    task.core = DeterministicCore(SOURCE, LIMITS, releases=False, pace_ms=PACE_MS)
    return task.start()


def merging() -> tuple[Logical, Writer, Writer]:
    """Return a task behind two tasks of one process, and those."""
    log = Log()
    return Logical(log, INNER).start(), Writer(log, A0), Writer(log, A1)


def together(*told: tuple[Writer, int]) -> None:
    """Append the progress of several writers, as one message."""
    rows = [(writer.producer, writer.generation, writer.next_seq, t) for writer, t in told]
    told[0][0].log.append(T, encode_joint_progress(1, rows))


def test_a_source_with_a_pace_announces_once_a_pace_for_all_partitions() -> None:
    """It sends no progress message itself; what it announces has the next seq of each partition."""
    task = announcing()
    task.take("x")
    for _ in range(40):
        task.tick(1)
    announced = task.all(do.Announce)
    assert [later.t - earlier.t for earlier, later in pairwise(announced)][1:] == [20_000]
    assert announced[-1].seqs == {SOURCE.outputs[0]: 2, SOURCE.outputs[1]: 1}
    assert not any(map(task.progress_messages, SOURCE.outputs))


def test_a_batch_announces_its_end_only_if_a_pace_has_passed() -> None:
    """A source that is never at rest announces all the same; one that is says no more than its clock does."""
    task = announcing()
    task.mono_ms += 100
    task.take("x")
    assert len(task.all(do.Announce)) == 1
    task.mono_ms += 1
    task.take("y")
    assert len(task.all(do.Announce)) == 1


def test_a_joint_message_counts_for_each_channel() -> None:
    """A record goes once all that the message names have passed it, and no sooner."""
    task, a0, a1 = merging()
    a0.send(("x", 100, A0))
    together((a0, 200), (a1, 99))
    task.read()
    assert task.names == []
    together((a0, 200), (a1, 100))
    task.read()
    assert task.names == ["x"]


def test_a_late_row_takes_nothing_back() -> None:
    """A row that was held for a while may come behind a frame that has passed it."""
    task, a0, a1 = merging()
    a0.send(("x", 100, A0))
    together((replace_seq(a0, 1), 50), (a1, 100))
    a0.send(("y", 110, A0))
    together((a0, 120), (a1, 120))
    task.read()
    assert task.names == ["x", "y"]


def replace_seq(writer: Writer, seq: int) -> Writer:
    """Return the writer as it was when its next seq was this one."""
    before = Writer(writer.log, writer.producer, writer.partition)
    before.next_seq = seq
    return before


def test_a_joint_message_counts_for_each_channel_of_an_aligned_task() -> None:
    """Progress that several deterministic tasks announce together is that of each (A2b)."""
    task, first, second = alone()
    first.log.append(ALONE, encode_joint_progress(1, [(A0, 1, 1, 300), (second.producer, 1, 1, 200)]))
    task.read()
    task.tick(100)
    time = last_commit(task).deterministic
    assert time is not None
    assert [frontier.t for frontier in time.frontiers] == [300, 200]


def test_a_lost_record_before_a_row_halts() -> None:
    """D3: each row has the next seq of its channel."""
    task, a0, a1 = merging()
    together((a0, 100), (replace_seq(a1, 2), 100))
    with pytest.raises(Halted, match="expected seq 1: a record before the progress message was lost"):
        task.read()


def test_a_channel_that_skips_takes_its_row_when_it_is_read_again() -> None:
    """Beyond the bound a channel skips, its row of a joint message too; the others' rows count at once."""
    log = Log()
    task = Logical(log, INNER, limits=replace(LIMITS, early_memory_bytes_max=1)).start()
    a0, a1 = Writer(log, A0), Writer(log, A1)
    a0.send(("x", 100, A0))
    a0.send(("y", 110, A0))
    together((a0, 200), (a1, 200))
    task.read()
    assert task.core.seen["frames skipped"] == 1
    assert task.names == ["x"]
    task.read()
    assert task.names == ["x", "y"]
