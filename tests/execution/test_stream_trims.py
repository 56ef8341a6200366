"""Streams are trimmed at once, or once what was committed is old enough for readers outside of the job."""

from grete.execution.changelog.stream_trims import PARTS, StreamTrims
from grete.protocol.ids import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def test_without_retention_trims_are_due_at_once() -> None:
    """A committed record is trimmed at once: no task needs it."""
    trims = StreamTrims(0)
    assert [trims.due(A, offset, 0.0) for offset in (3, 9)] == [3, 9]


def test_what_was_committed_stays_for_the_retention() -> None:
    """Never shorter, at most a 32nd longer; partitions go by themselves, and memory is bounded."""
    retention_ms = 3_200
    trims = StreamTrims(retention_ms)
    for now_ms in range(20_000):
        offset = trims.due(A, now_ms, float(now_ms))  # one record each ms, committed at once
        assert offset <= max(0, now_ms - retention_ms)
        if offset:
            assert offset >= now_ms - retention_ms - retention_ms / PARTS
        assert len(trims._held[A]) <= PARTS + 1
    assert trims.due(B, 5, 20_000.0) == 0
