"""The log in memory answers as the embedded log does."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grete.errors import OffsetOutOfRange
from grete.logs.embedded import EmbeddedLog
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import ExternalRecord, Log
from grete.protocol.ids import TopicPartition

A0, A1, OUT = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("out", 0)
MiB = 1 << 20


def record(value: bytes) -> ExternalRecord:
    """Return a plain record for OUT."""
    return ExternalRecord(OUT, b"k", value, 7)


PARTITION = st.sampled_from([A0, A1, OUT])
OPERATION = st.one_of(
    st.tuples(st.just("send"), PARTITION, st.binary(max_size=20), st.none() | st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.just("produce"), st.lists(PARTITION, max_size=3)),
    st.tuples(st.just("poll")),
    st.tuples(st.just("trim"), PARTITION, st.integers(0, 12)),
    st.tuples(st.just("read"), PARTITION, st.integers(0, 12), st.integers(0, 400)),
    st.tuples(st.just("bounds"), PARTITION),
)


def answer(log: Log, topic: str, operation: tuple[object, ...]) -> object:
    """Perform an operation with all topics renamed; return what came of it, errors included."""

    def renamed(partition: TopicPartition) -> TopicPartition:
        return TopicPartition(f"{topic}-{partition.topic}", partition.partition)

    try:
        match operation:
            case ("send", TopicPartition() as partition, bytes() as value, int() | None as fence, int() as outputs):
                placed = [record(value)._replace(partition=renamed(OUT))] * outputs
                log.send(1, 2, renamed(partition), value, fence=fence, outputs=placed)
            case ("produce", list() as partitions):
                log.produce(3, 4, [record(b"p")._replace(partition=renamed(each)) for each in partitions])
            case ("poll",):
                return log.poll()
            case ("trim", TopicPartition() as partition, int() as before):
                log.trim(renamed(partition), before)
            case ("read", TopicPartition() as partition, int() as offset, int() as budget):
                return log.read(renamed(partition), offset, budget)
            case ("bounds", TopicPartition() as partition):
                return log.bounds(renamed(partition))
            case _:
                raise AssertionError(operation)
    except OffsetOutOfRange as error:
        return str(error)
    return None


def test_all_logs_answer_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any sequence of operations has the same answers from the embedded log as from plain lists."""
    monkeypatch.setattr("time.time_ns", lambda: 5_000_000)
    embedded, memory = EmbeddedLog(tmp_path / "log.db"), MemoryLog(MemoryLogData(lambda: 5))
    runs = 0

    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(OPERATION, max_size=30))
    def compare(operations: list[tuple[object, ...]]) -> None:
        nonlocal runs
        runs += 1
        embedded.poll(), memory.poll()
        for log in (embedded, memory):
            log.create_topic(f"run{runs}-a", 2)
            log.create_topic(f"run{runs}-out", 1)
        for operation in [*operations, ("poll",), ("read", A0, 0, MiB), ("read", OUT, 0, MiB)]:
            assert answer(embedded, f"run{runs}", operation) == answer(memory, f"run{runs}", operation)

    compare()
    embedded.close()
