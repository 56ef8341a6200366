"""Outputs: which partition a record goes to, in which frame, and what is left after a rollback."""

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import DeadLetter, Input, Job, Output, Record, Task, Topic, bytes_serde, int64, utf8
from grete.api.jobs.graph import StageGraph
from grete.errors import ConfigError, SerdeError, TaskError
from grete.execution.records.outputs import Outputs
from grete.ports import ExternalRecord
from grete.protocol.envelope import HEADER_SIZE, Header, MessageType, encode_header
from grete.protocol.frames import decode_columns, decode_headers
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.protocol.record_batch import RecordBatch
from grete.settings import Settings

IN = Topic("in", key=utf8, value=utf8)
INNER = Topic("inner", key=utf8, value=bytes_serde)
OUTER = Topic("outer", key=utf8, value=int64)
HEADER = encode_header(Header(MessageType.FRAME, 0, 1, 1, 1))


class Writes(Task):
    lines = Input(IN, errors=DeadLetter(Topic("letters", key=utf8, value=utf8)))
    inner = Output(INNER)
    outer = Output(OUTER)

    def process(self, record: Record[str, str]) -> None: ...


class Reads(Task):
    lines = Input(INNER)

    def process(self, record: Record[str, bytes]) -> None: ...


class AlsoReads(Reads):
    pass


def outputs_of(partitions: int = 4, stages: Any = (Writes, Reads), **settings: int) -> Outputs:
    """Return the outputs of a task of Writes; the external topic has three partitions."""
    job = Job("j", stages=stages, partitions=partitions)
    stage: StageGraph = job.stages[0]
    return Outputs(stage, job.topology(), Settings(**settings), {"outer": 3, "letters": 2}.get)  # type: ignore[arg-type]  # settings of many types


def frames(outputs: Outputs) -> list[tuple[TopicPartition, RecordBatch]]:
    """Take and decode all frames."""
    decoded = []
    for partition, count, body in outputs.take():
        columns = decode_columns(HEADER + body)
        assert count == len(columns.keys)
        decoded.append((partition, columns))
    return decoded


def test_records_go_where_kafkas_partitioner_puts_their_key() -> None:
    """murmur2 of the encoded key, modulo the stream's partitions; frames come in the order of first use."""
    outputs = outputs_of()
    send = outputs.sender(INNER)
    keys = [f"key-{i}" for i in range(20)]
    for index, key in enumerate(keys):
        outputs.timestamp = index
        send(key, key.encode())
    expected: dict[int, list[bytes]] = {}
    for key in keys:
        expected.setdefault(partition_of(key.encode(), 4), []).append(key.encode())
    taken = frames(outputs)
    assert [(partition.partition, columns.keys) for partition, columns in taken] == list(expected.items())
    assert {partition.topic for partition, _ in taken} == {"j.writes.inner.reads"}
    assert all(columns.values == columns.keys and columns.headers is None for _, columns in taken)
    assert [keys[t].encode() for _, columns in taken for t in columns.timestamps] == list(chain(*expected.values()))
    assert outputs.take() == []


def test_a_topic_read_by_two_stages_goes_to_both() -> None:
    """Each consuming stage has a stream of its own with the same records."""
    outputs = outputs_of(stages=[Writes, Reads, AlsoReads], partitions=1)
    outputs.sender(INNER)("k", b"v")
    taken = frames(outputs)
    assert [partition.topic for partition, _ in taken] == ["j.writes.inner.reads", "j.writes.inner.also-reads"]
    assert [columns.values for _, columns in taken] == [[b"v"], [b"v"]]


def test_records_without_a_key_take_turns() -> None:
    """Null keys go round robin; the turn is kept outside so that a replay repeats it."""
    outputs = outputs_of()
    send = outputs.sender(INNER)
    outputs.turn = 2
    for value in (b"0", b"1", b"2"):
        send(None, value)
    assert [(partition.partition, columns.values) for partition, columns in frames(outputs)] == [
        (2, [b"0"]),
        (3, [b"1"]),
        (0, [b"2"]),
    ]
    assert outputs.turn == 5


def test_explicit_partition_timestamp_headers_and_nulls() -> None:
    """The sender's words are kept; records without headers beside those with some have none; null is null."""
    outputs = outputs_of()
    outputs.timestamp = 5
    send = outputs.sender(INNER)
    send("k", b"0", partition=3)
    send("k", None, partition=3, timestamp=-7, headers=[("a", b"1"), ("a", b"2")])
    send(None, b"2", partition=3)
    [(partition, columns)] = frames(outputs)
    assert partition.partition == 3
    assert (columns.keys, columns.values) == ([b"k", b"k", None], [b"0", None, b"2"])
    assert list(columns.timestamps) == [5, -7, 5]
    assert columns.headers is not None
    first, second, third = columns.headers
    assert (first, third) == (None, None)
    assert decode_headers(second or b"") == (("a", b"1"), ("a", b"2"))


@pytest.mark.parametrize(
    ("key", "value", "how", "text"),
    [
        (1, b"", {}, "output to inner: serde utf8 cannot encode int 1"),
        ("k", "v", {}, "output to inner: serde bytes cannot encode str 'v'"),
        ("k", b"", {"partition": 4}, "output to inner: partition 4: there are 4"),
        ("k", b"", {"partition": -1}, "partition -1"),
        ("k", b"", {"timestamp": 1.5}, "timestamp 1.5: need milliseconds"),
        ("k", b"", {"timestamp": 1 << 63}, "need milliseconds"),
    ],
)
def test_bad_sends_are_refused(key: Any, value: Any, how: dict[str, Any], text: str) -> None:
    """The error names the topic and the value, and nothing is sent."""
    outputs = outputs_of()
    with pytest.raises(TaskError) as caught:
        outputs.sender(INNER)(key, value, **how)
    assert text in str(caught.value)
    assert outputs.take() == []
    assert isinstance(caught.value, SerdeError) == ("serde" in text)


def test_external_records_keep_the_order_of_the_sends() -> None:
    """A topic that only leaves the job gets plain records, partitioned by its own count."""
    outputs = outputs_of()
    send = outputs.sender(OUTER)
    outputs.timestamp = 9
    send("a", 1)
    send(None, None, headers=[("h", b"x")])
    first, second = outputs.take_external()
    assert first == ExternalRecord(TopicPartition("outer", partition_of(b"a", 3)), b"a", int64.encode(1), 9)
    assert second[:4] == (TopicPartition("outer", 0), None, None, 9)
    assert decode_headers(second.headers or b"") == (("h", b"x"),)
    assert outputs.take_external() == []


def test_external_bytes_count_what_is_held() -> None:
    """The size grows with each record, is taken back by a rollback, and is zero once taken (A8)."""
    outputs = outputs_of()
    send = outputs.sender(OUTER)
    assert outputs.external_bytes == 0
    send("a" * 1000, 1)
    held = outputs.external_bytes
    assert held >= 1008
    outputs.mark()
    send("b", 1)
    assert outputs.external_bytes > held
    outputs.rollback()
    assert outputs.external_bytes == held
    outputs.take_external()
    assert outputs.external_bytes == 0


def test_an_output_topic_must_exist() -> None:
    """A sink topic that the log does not have is a ConfigError that names it, at the start."""
    job = Job("j", stages=[Writes])
    outputs = Outputs(job.stages[0], job.topology(), Settings(), lambda _topic: None)
    with pytest.raises(ConfigError, match="output topic 'outer' does not exist"):
        outputs.sender(OUTER)


SENDS = st.lists(
    st.tuples(
        st.none() | st.text("ab", max_size=3),
        st.none() | st.binary(max_size=60),
        st.lists(st.tuples(st.just("h"), st.binary(max_size=20)), max_size=1),
    ),
    max_size=40,
)


@given(SENDS, st.integers(1, 300), st.integers(1, 3))
def test_frames_hold_every_record_in_order_and_keep_to_the_bound(
    sends: list[tuple[str | None, bytes | None, Any]], frame_bytes_max: int, partitions: int
) -> None:
    """The frames of a partition, joined, are what was sent to it; only a lone record is larger than the bound."""
    outputs = outputs_of(partitions, frame_bytes_max=frame_bytes_max)
    send = outputs.sender(INNER)
    expected: dict[int, list[Any]] = {}
    for index, (key, value, headers) in enumerate(sends):
        outputs.timestamp = index
        partition = index % partitions
        send(key, value, headers=headers, partition=partition)
        raw_key = None if key is None else key.encode()
        expected.setdefault(partition, []).append((raw_key, value, index, tuple(headers)))
    taken: dict[int, list[Any]] = {}
    for where, columns in frames(outputs):
        cells = columns.headers or [None] * len(columns.keys)
        headers_of = [decode_headers(cell) if cell else () for cell in cells]
        rows = zip(columns.keys, columns.values, columns.timestamps, headers_of, strict=True)
        taken.setdefault(where.partition, []).extend(rows)
        assert len(columns.keys) == 1 or size(columns) <= frame_bytes_max
    assert taken == expected
    assert list(taken) == list(expected)


def size(columns: RecordBatch) -> int:
    """Return the bytes of keys, values, headers, lengths and timestamps."""
    cells = [*columns.keys, *columns.values, *(columns.headers or ())]
    return sum(len(cell or b"") for cell in cells) + 16 * len(columns.keys)


def test_frames_are_as_few_as_the_bound_allows() -> None:
    """Records are put together up to the bound: 10 of 100 bytes with a bound of 512 are three frames."""
    outputs = outputs_of(1, frame_bytes_max=512)
    send = outputs.sender(INNER)
    for _ in range(10):
        send("k" * 20, b"v" * 60)
    assert [count for _, count, _ in outputs.take()] == [4, 4, 2]


@given(SENDS, SENDS, SENDS)
def test_a_rollback_takes_back_what_came_after_the_mark(before: Any, undone: Any, after: Any) -> None:
    """Sends between mark and rollback leave no trace in streams or external topics, headers included."""

    def collect(*runs: tuple[Any, bool]) -> object:
        outputs = outputs_of(2)
        inner, outer = outputs.sender(INNER), outputs.sender(OUTER)
        for sends, undo in runs:
            outputs.mark()
            for key, value, headers in sends:
                inner(key, value, headers=headers, partition=len(value or b"") % 2)
                outer(key, len(headers), headers=headers, partition=0)
            if undo:
                outputs.rollback()
        return sorted(outputs.take()), outputs.take_external()

    assert collect((before, False), (undone, True), (after, False)) == collect((before, False), (after, False))


def test_clear_forgets_everything() -> None:
    """After a rollback of the task nothing that was collected is sent (R4)."""
    outputs = outputs_of()
    outputs.sender(INNER)("k", b"v", headers=[("h", b"")])
    outputs.sender(OUTER)("k", 1)
    outputs.clear()
    assert (outputs.take(), outputs.take_external(), outputs.external_bytes) == ([], [], 0)
    outputs.sender(INNER)("k", b"w")
    [(_, columns)] = frames(outputs)
    assert (columns.values, columns.headers) == ([b"w"], None)


def test_bodies_have_no_header() -> None:
    """take gives bodies: producer, generation, checkpoint id and seq are the core's to put in front."""
    outputs = outputs_of(1)
    outputs.sender(INNER)("k", b"v")
    [(_, _, body)] = outputs.take()
    assert decode_columns(bytes(HEADER) + body).values == [b"v"]
    assert len(HEADER) == HEADER_SIZE
