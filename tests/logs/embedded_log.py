"""Shared helpers of the embedded log's tests."""

from grete.logs.embedded import EmbeddedLog
from grete.protocol.ids import TopicPartition

A0, OUT, SHARED = TopicPartition("a", 0), TopicPartition("out", 0), TopicPartition("shared", 0)
KiB, MiB = 1 << 10, 1 << 20


def append(log: EmbeddedLog, *values: bytes, sync: bool = False) -> None:
    """Append to A0 in one transaction."""
    for token, value in enumerate(values):
        log.send(0, token, A0, value, sync=sync)
    log.poll()


def values(log: EmbeddedLog, partition: TopicPartition = A0) -> list[bytes | None]:
    """Return all values of a partition."""
    offset, end = log.bounds(partition)
    found: list[bytes | None] = []
    while offset < end:
        rows = log.read(partition, offset, 64 * KiB)
        found += [row.value for row in rows]
        offset = rows[-1].offset + 1
    return found
