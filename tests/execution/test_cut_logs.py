"""The reaction of a task to a changelog or an input that was trimmed, cut, damaged or claimed (C1, K3, R1)."""

import pytest

from grete.errors import Fenced, Halted, OffsetOutOfRange
from grete.logs.memory import MemoryLog
from grete.protocol.changelog import ChangelogHeader, ChangelogType, Claim, encode_claim, encode_data
from grete.protocol.ids import TopicPartition
from grete.stores.memory import MemoryDisk
from tests.core.streams import IN, INNER, SOURCE, T
from tests.execution.driving import STORE, Driven, driven


def test_the_predecessor_is_fenced() -> None:
    """The log refuses the next commit after another process's claim, and the store is not touched (C3, C5)."""
    task, a0, a1 = driven()
    Driven(data=task.data, disk=MemoryDisk(), nonce=b"another process!").start()
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    with pytest.raises(Fenced, match=r"generation 2, claim at offset"):
        task.run()
    assert task.keys() == set()


def test_a_gap_that_was_trimmed_is_a_newer_generations() -> None:
    """Only an owner trims: what cannot be read again was trimmed by a successor, so the process gives up (C3, C5)."""
    task, a0, a1 = driven()
    task.append(INNER.changelog, encode_data(ChangelogHeader(ChangelogType.DATA, 0, 1, 0), [], [], []))
    a0.mark(1)
    a1.mark(1)
    task.log.mute = True
    task.run()
    MemoryLog(task.data).trim(INNER.changelog, task.log.bounds(INNER.changelog)[1])
    task.log.mute = False
    with pytest.raises(Fenced, match="its changelog was trimmed by a newer generation"):
        task.run()


def test_an_input_that_a_successor_has_trimmed_fences() -> None:
    """A process that wakes up and finds its stream trimmed looks for a newer claim before it calls it a loss (C5)."""
    task, a0, _ = driven()
    for number in range(3):
        a0.send(1, f"record {number}")
    stream = INNER.channels[0][1]
    MemoryLog(task.data).trim(stream, task.log.bounds(stream)[1])
    claim = Claim(b"another process!", "there", 1, 0)
    task.append(INNER.changelog, encode_claim(ChangelogHeader(ChangelogType.CLAIM, 9, 0, 0), claim))
    with pytest.raises(Fenced, match="generation 9, claim"):
        task.run()


def test_an_input_that_was_trimmed_without_a_right_ends_the_process() -> None:
    """Without a newer claim the loss is told as it is; the next start halts on it (K3)."""
    task, a0, _ = driven()
    for number in range(3):
        a0.send(1, f"record {number}")
    stream = INNER.channels[0][1]
    MemoryLog(task.data).trim(stream, task.log.bounds(stream)[1])
    with pytest.raises(OffsetOutOfRange):
        task.run()


def test_an_external_input_that_expires_halts() -> None:
    """Its retention has deleted what the task had still to read: a person must decide what is lost (K3)."""
    task = Driven(SOURCE).start()
    task.append(IN, b"x", b"y")
    MemoryLog(task.data).trim(IN, 2)
    with pytest.raises(Halted, match=r"a-0 reads on at an offset that is gone: .* retention") as caught:
        task.run()
    assert (caught.value.partition, caught.value.offset) == (IN, 0)


def test_a_changelog_that_is_trimmed_during_a_start_is_read_again() -> None:
    """The predecessor still lives and trims: this start fails as a crash does, and the next one begins again (R1)."""
    task, *_ = driven()
    after = Driven(data=task.data, nonce=b"another process!")
    after.driver.start(nonce=b"another process!", host="here", pid=1, wall_ms=0)
    after.driver.tick()
    after.driver.tick()
    MemoryLog(task.data).trim(INNER.changelog, task.log.bounds(INNER.changelog)[1])
    with pytest.raises(OffsetOutOfRange):
        after.run()


def test_damage_in_a_restore_halts_with_its_place() -> None:
    """A changelog that cannot be read stops the start, naming topic, partition and offset (1.2)."""
    task, *_ = driven()
    rows = task.data.partition(INNER.changelog).rows
    rows[1] = rows[1]._replace(value=b"\x19damaged", headers=None)
    with pytest.raises(Halted, match=r"j\.b\.changelog\[0\], offset 1: .* the changelog is damaged"):
        Driven(data=task.data, nonce=b"another process!").start()


def test_an_input_that_was_cut_halts() -> None:
    """A stream that ends before the committed position was truncated or recreated (K3)."""
    task, a0, a1 = driven()
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    task.run()
    partition = task.data.partition(TopicPartition(*T))
    partition.rows.clear()
    partition.start = 2
    with pytest.raises(Halted, match=r"j\.a\.t\.b\[0\].* offset 5, but .*ends at 2"):
        Driven(data=task.data, disk=task.disk, nonce=b"another process!").start()
    assert STORE in task.disk.stores
