"""Reading the rows of a partition from an offset to another one."""

from framework.logs.partition_reader import rows_left
from framework.ports import LogReader
from protocol.ids import TopicPartition


def read_messages(log: LogReader, partition: TopicPartition, begin: int, end: int) -> list[tuple[int, int, bytes]]:
    """Return (offset, append time, value) from ``begin`` to ``end``; what is trimmed meanwhile is left out."""
    return [(row.offset, row.append_time_ms, row.value or b"") for row in rows_left(log, partition, begin, end)]
