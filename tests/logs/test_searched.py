"""A log that is searched answers as the log does, and reads each place once."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grete.logs import searched
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.logs.searched import SearchedLog
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition

PARTITION = TopicPartition("log", 0)
ALL = 1 << 20


class CountingLog(MemoryLog):
    """Counts its reads."""

    reads = 0

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Count one."""
        self.reads += 1
        return super().read(partition, offset, max_bytes)


def made(messages: int) -> tuple[MemoryLogData, CountingLog]:
    """Return a log of one partition with that many messages."""
    data = MemoryLogData(lambda: 0)
    log = CountingLog(data)
    log.create_topic(PARTITION.topic, 1)
    for number in range(messages):
        data.append(PARTITION, None, bytes([number]), None, None)
    return data, log


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from((1, 300, ALL))), max_size=20), st.sampled_from((0, 2000)))
def test_it_answers_as_the_log_does(monkeypatch: pytest.MonkeyPatch, reads: list[tuple[int, int]], kept: int) -> None:
    """Each read begins with the message that was asked for, in whatever order, and leaves none out."""
    monkeypatch.setattr(searched, "KEPT_BYTES_MAX", kept)
    _, log = made(30)
    whole = log.read(PARTITION, 0, ALL)
    search = SearchedLog(log)
    for offset, max_bytes in reads:
        found = search.read(PARTITION, offset, max_bytes)
        assert found == whole[offset : offset + len(found)]
        assert bool(found) == (offset < 30)


def test_a_place_is_read_once() -> None:
    """The search reads the log again for later messages, and for a partition that it has left."""
    data, log = made(30)
    search = SearchedLog.of(SearchedLog(log))
    assert [len(search.read(PARTITION, offset, ALL)) for offset in (0, 29, 7)] == [30, 1, 23]
    assert log.reads == 1
    assert search.read(PARTITION, 30, ALL) == []
    data.append(PARTITION, None, b"new", None, None)
    assert [row.value for row in search.read(PARTITION, 30, ALL)] == [b"new"]
    assert search.bounds(PARTITION) == (0, 31)
    before = log.reads
    search.leave(PARTITION)
    search.read(PARTITION, 7, ALL)
    assert log.reads == before + 1
