"""Reading inputs: in turn, in order, and from where the core says (R5)."""

from collections.abc import Collection, Mapping
from functools import partial
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.errors import Halted, OffsetOutOfRange
from grete.execution.inputs.input_reader import InputReader
from grete.execution.limits import GIVE_WAY_ROWS
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.protocol.ids import TopicPartition

P, Q, R = TopicPartition("p", 0), TopicPartition("q", 0), TopicPartition("r", 0)


def reader(rows: dict[TopicPartition, int], batch_bytes_max: int = 1) -> tuple[InputReader, MemoryLogData]:
    """Return an input reader at offset 0 of partitions with that many messages, one in a batch by default."""
    data = MemoryLogData(lambda: 0)
    log = MemoryLog(data)
    for partition, count in rows.items():
        log.create_topic(partition.topic, 1)
        for number in range(count):
            data.append(partition, None, b"%d" % number, None, None)
    into = InputReader(log, list(rows), batch_bytes_max)
    for partition in rows:
        into.seek(partition, 0)
    return into, data


def in_order(
    stamps: dict[TopicPartition, list[int]],
    batch_bytes_max: int = 1_000,
    priorities: Mapping[str, int] = MappingProxyType({}),
) -> tuple[InputReader, MemoryLogData]:
    """Return an input reader over partitions of records with these timestamps, in the order of time."""
    data = MemoryLogData(lambda: 0)
    log = MemoryLog(data)
    for partition, times in stamps.items():
        log.create_topic(partition.topic, 1)
        for at in times:
            data.append(partition, None, b"x", at, None)
    into = InputReader(log, list(stamps), batch_bytes_max, ordered=list(stamps), priorities=priorities)
    for partition in stamps:
        into.seek(partition, 0)
    return into, data


def _apart(topics: Collection[str], read: TopicPartition, other: TopicPartition) -> bool:
    return read.topic == other.topic and read.topic in topics


def test_partitions_of_one_topic_have_no_order_among_them() -> None:
    """A batch of the one that is behind comes whole, up to the next record of another that is not apart from it."""
    data = MemoryLogData(lambda: 0)
    log = MemoryLog(data)
    stamps = {("p", 0): [1, 4, 9], ("p", 1): [2, 3, 8], ("q", 0): [5, 6]}
    for topic, count in (("p", 2), ("q", 1)):
        log.create_topic(topic, count)
    ordered = [TopicPartition(*place) for place in stamps]
    for partition in ordered:
        for at in stamps[partition.topic, partition.partition]:
            data.append(partition, None, b"x", at, None)
    for grouped, found in (
        ((), [[1], [2, 3], [4], [5, 6], [8], [9]]),
        (("p",), [[1, 4], [2, 3], [5, 6], [8], [9]]),
        (("p", "q"), [[1, 4], [2, 3], [5, 6], [8], [9]]),
    ):
        into = InputReader(log, ordered, 1_000, ordered=ordered)
        into.apart = partial(_apart, grouped)
        for partition in ordered:
            into.seek(partition, 0)
        assert [stamps for _, stamps in runs(into)] == found


def runs(into: InputReader) -> list[tuple[str, list[int]]]:
    """Return (topic, timestamps) of each batch that is left."""
    found = []
    while (batch := into.next_batch()) is not None:
        found.append((batch[0].topic, [row.timestamp_ms for row in batch[1]]))
    return found


def drain(into: InputReader) -> list[tuple[TopicPartition, int]]:
    """Return (partition, offset) of all that is left, in the order in which it is read."""
    found = []
    while (batch := into.next_batch()) is not None:
        found += [(batch[0], row.offset) for row in batch[1]]
    return found


def test_partitions_take_turns() -> None:
    """One batch each, so that no partition starves; the empty ones are passed over."""
    into, _ = reader({P: 3, Q: 1})
    assert drain(into) == [(P, 0), (Q, 0), (P, 1), (P, 2)]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 300))
def test_every_message_comes_once_in_order(counts: list[int], batch_bytes_max: int) -> None:
    """Each partition is read from its position to its end, whatever the batch size."""
    rows = {TopicPartition(f"t{index}", 0): count for index, count in enumerate(counts)}
    into, _ = reader(rows, batch_bytes_max)
    found = drain(into)
    for partition, count in rows.items():
        assert [offset for where, offset in found if where == partition] == list(range(count))
        assert into.drained(partition)


def test_after_a_seek_nothing_stale_follows() -> None:
    """A seek drops rows read ahead: they are read again from the sought offset, and nothing before it (R5)."""
    into, _ = reader({P: 5}, batch_bytes_max=1_000)
    assert len(drain(into)) == 5
    into.seek(P, 2)
    assert not into.drained(P)
    assert drain(into) == [(P, 2), (P, 3), (P, 4)]


def test_new_messages_are_found() -> None:
    """Drained is a statement about now."""
    into, data = reader({P: 1})
    assert into.next_batch() is not None
    assert (into.next_batch(), into.drained(P)) == (None, True)
    data.append(P, None, b"new", None, None)
    assert not into.drained(P)
    assert drain(into) == [(P, 1)]


def test_a_seek_beyond_the_end_halts() -> None:
    """A log that ends before the committed position was truncated or recreated (K3)."""
    into, _ = reader({P: 3})
    into.seek(P, 3)
    with pytest.raises(Halted, match=r"p\[0\].* offset 4, but .*ends at 3: .*truncated or recreated"):
        into.seek(P, 4)


def test_a_position_that_was_trimmed_is_an_error() -> None:
    """Messages are never passed over in silence: reading before the start raises (K3)."""
    into, data = reader({P: 3})
    MemoryLog(data).trim(P, 2)
    with pytest.raises(OffsetOutOfRange):
        into.next_batch()


def test_a_backlog_is_read_in_the_order_of_time() -> None:
    """A batch is cut where another partition has the next record, and nowhere else: not row by row."""
    into, _ = in_order({P: [1, 2, 3, 10, 11, 30], Q: [5, 10, 12, 20]})
    assert runs(into) == [("p", [1, 2, 3]), ("q", [5, 10]), ("p", [10, 11]), ("q", [12, 20]), ("p", [30])]


def test_the_rest_of_a_cut_batch_is_at_hand() -> None:
    """Outputs are flushed at the end of a batch, not at each change of hands."""
    into, _ = in_order({P: [1, 9], Q: [5]})
    more = []
    while into.next_batch() is not None:
        more.append(into.more)
    assert more == [True, False, False]


def test_a_partition_with_nothing_to_read_blocks_no_other() -> None:
    """Whether it holds back time is another question: reading goes on."""
    into, data = in_order({P: [1, 2], Q: []})
    assert runs(into) == [("p", [1, 2])]
    data.append(Q, None, b"x", 1, None)
    data.append(P, None, b"x", 3, None)
    assert runs(into) == [("q", [1]), ("p", [3])]


def test_what_is_held_is_dropped_at_a_seek() -> None:
    """Nothing read ahead follows a seek, of any partition (R5); what is held is not drained."""
    into, _ = in_order({P: [1, 9], Q: [5, 6]})
    assert into.next_batch() is not None
    assert not into.drained(P)
    assert into.where(P) is None
    into.seek(P, 0)
    assert into.where(P) == (0, 2)
    into.seek(Q, 1)
    assert runs(into) == [("p", [1]), ("q", [6]), ("p", [9])]


@given(st.lists(st.lists(st.integers(0, 50), max_size=12), min_size=2, max_size=4), st.integers(1, 40))
def test_sorted_partitions_are_merged(times: list[list[int]], batch_bytes_max: int) -> None:
    """Sorted partitions come out as one sorted sequence, each record once, whatever the batch size."""
    stamps = {TopicPartition(f"t{index}", 0): sorted(each) for index, each in enumerate(times)}
    into, _ = in_order(stamps, batch_bytes_max)
    found = [at for _, batch in runs(into) for at in batch]
    assert found == sorted(at for each in times for at in each)
    assert all(into.drained(partition) for partition in stamps)


@given(st.lists(st.lists(st.integers(0, 50), max_size=12), min_size=2, max_size=4), st.integers(1, 40))
def test_unsorted_partitions_keep_their_own_order(times: list[list[int]], batch_bytes_max: int) -> None:
    """Order holds across partitions, not inside one: each as it is, every record once."""
    stamps = {TopicPartition(f"t{index}", 0): each for index, each in enumerate(times)}
    into, _ = in_order(stamps, batch_bytes_max)
    found = runs(into)
    for partition, each in stamps.items():
        assert [at for topic, batch in found if topic == partition.topic for at in batch] == each


def test_a_higher_priority_is_read_first_and_equal_ones_by_time() -> None:
    """Priority goes before time: of the two inputs without a priority, the older rows come first."""
    last = TopicPartition("last", 0)
    into, _ = in_order({Q: [5, 9], P: [50, 60], last: [1, 7], R: [6]}, priorities={"p": 2, "last": -1})
    assert runs(into) == [("p", [50, 60]), ("q", [5]), ("r", [6]), ("q", [9]), ("last", [1, 7])]


def test_what_comes_to_a_higher_priority_interrupts_the_others() -> None:
    """It waits for the rows that are in hand, not for the rest of a batch (a read is larger)."""
    into, data = in_order({P: [], Q: [*range(600)]}, batch_bytes_max=1_000_000, priorities={"p": 1})
    batch = into.next_batch()
    assert batch is not None
    assert (batch[0], len(batch[1]), into.more) == (Q, GIVE_WAY_ROWS, True)
    data.append(P, None, b"x", 1_000, None)
    assert [(topic, len(stamps)) for topic, stamps in runs(into)] == [("p", 1), ("q", 256), ("q", 88)]


def test_an_input_that_waits_for_one_of_a_higher_priority_has_rows_at_hand() -> None:
    """So it is not idle, and holds event time back (E4)."""
    into, _ = in_order({P: [1, 2], Q: [3]}, batch_bytes_max=1, priorities={"p": 1})
    assert into.next_batch() is not None
    assert (into.where(P), into.where(Q)) == ((1, 2), None)


@given(
    st.lists(st.tuples(st.integers(-1, 2), st.lists(st.integers(0, 9), max_size=6)), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=8),
    st.integers(1, 300),
)
def test_no_row_comes_while_one_of_a_higher_priority_is_there(
    inputs: list[tuple[int, list[int]]], more: list[tuple[int, int]], batch_bytes_max: int
) -> None:
    """Rows come by priority, once each, in the order of their partition, also those that arrive meanwhile."""
    partitions = [TopicPartition(f"t{index}", 0) for index in range(len(inputs))]
    priority = {partition: inputs[index][0] for index, partition in enumerate(partitions)}
    stamps = {partition: inputs[index][1] for index, partition in enumerate(partitions)}
    into, data = in_order(stamps, batch_bytes_max, {partition.topic: priority[partition] for partition in partitions})
    found: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}
    coming = iter(more)
    while (batch := into.next_batch()) is not None or (arrived := next(coming, None)) is not None:
        if batch is not None:
            waiting = [p for p in partitions if len(found[p]) < len(data.partitions[p].rows)]
            assert priority[batch[0]] == max(priority[p] for p in waiting)
            found[batch[0]] += [row.offset for row in batch[1]]
            arrived = next(coming, None)
        if arrived is not None:
            data.append(partitions[arrived[0] % len(partitions)], None, b"x", arrived[1], None)
    assert found == {p: [*range(len(data.partitions[p].rows))] for p in partitions}
