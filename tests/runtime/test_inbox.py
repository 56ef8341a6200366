"""Reading inputs: in turn, in order, and from where the core says (R5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.errors import Halted, OffsetOutOfRange
from framework.logs.memory import MemoryLog, MemoryLogData
from framework.runtime.inbox import Inbox
from protocol.ids import TopicPartition

P, Q = TopicPartition("p", 0), TopicPartition("q", 0)


def inbox(rows: dict[TopicPartition, int], batch_bytes_max: int = 1) -> tuple[Inbox, MemoryLogData]:
    """Return an inbox at offset 0 of partitions with so many messages, one in a batch by default."""
    data = MemoryLogData(lambda: 0)
    log = MemoryLog(data)
    for partition, count in rows.items():
        log.create_topic(partition.topic, 1)
        for number in range(count):
            data.append(partition, None, b"%d" % number, None, None)
    into = Inbox(log, list(rows), batch_bytes_max)
    for partition in rows:
        into.seek(partition, 0)
    return into, data


def drain(into: Inbox) -> list[tuple[TopicPartition, int]]:
    """Return (partition, offset) of all that is left, in the order in which it is read."""
    found = []
    while (batch := into.next_batch()) is not None:
        found += [(batch[0], row[0]) for row in batch[1]]
    return found


def test_partitions_take_turns() -> None:
    """One batch each, so that no partition starves; the empty ones are passed over."""
    into, _ = inbox({P: 3, Q: 1})
    assert drain(into) == [(P, 0), (Q, 0), (P, 1), (P, 2)]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 300))
def test_every_message_comes_once_in_order(counts: list[int], batch_bytes_max: int) -> None:
    """Whatever the batch size, each partition is read from its position to its end."""
    rows = {TopicPartition(f"t{index}", 0): count for index, count in enumerate(counts)}
    into, _ = inbox(rows, batch_bytes_max)
    found = drain(into)
    for partition, count in rows.items():
        assert [offset for where, offset in found if where == partition] == list(range(count))
        assert into.drained(partition)


def test_after_a_seek_nothing_stale_follows() -> None:
    """What was read ahead is read again from the sought offset, and nothing before it (R5)."""
    into, _ = inbox({P: 5}, batch_bytes_max=1_000)
    assert len(drain(into)) == 5
    into.seek(P, 2)
    assert not into.drained(P)
    assert drain(into) == [(P, 2), (P, 3), (P, 4)]


def test_new_messages_are_found() -> None:
    """Drained is a statement about now."""
    into, data = inbox({P: 1})
    assert into.next_batch() is not None
    assert (into.next_batch(), into.drained(P)) == (None, True)
    data.append(P, None, b"new", None, None)
    assert not into.drained(P)
    assert drain(into) == [(P, 1)]


def test_a_seek_beyond_the_end_halts() -> None:
    """A log that ends before the committed position was truncated or recreated (K3)."""
    into, _ = inbox({P: 3})
    into.seek(P, 3)
    with pytest.raises(Halted, match=r"p\[0\].* offset 4, but .*ends at 3: .*truncated or recreated"):
        into.seek(P, 4)


def test_a_position_that_was_trimmed_is_an_error() -> None:
    """Messages are never passed over in silence: reading before the start raises (K3)."""
    into, data = inbox({P: 3})
    MemoryLog(data).trim(P, 2)
    with pytest.raises(OffsetOutOfRange):
        into.next_batch()
