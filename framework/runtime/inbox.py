"""Reads a task's inputs: one batch ahead, in turn, from where the core says (R5)."""

from collections.abc import Sequence

from framework.errors import Halted
from framework.ports import Log, LogRow
from protocol.ids import TopicPartition


class Inbox:
    """Input partitions with their positions. A seek drops what was read ahead, so nothing stale can follow it."""

    def __init__(self, log: Log, partitions: Sequence[TopicPartition], batch_bytes_max: int) -> None:
        self._log = log
        self._batch_bytes_max = batch_bytes_max
        self._turn = list(partitions)
        self._position: dict[TopicPartition, int] = {}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this partition from ``offset`` on next. Raises Halted if the log ends before it."""
        end = self._log.bounds(partition)[1]
        if offset > end:
            raise Halted(
                f"reading {partition} goes on at offset {offset}, but it ends at {end}: truncated or recreated (K3)"
            )
        self._position[partition] = offset

    def next_batch(self) -> tuple[TopicPartition, list[LogRow]] | None:
        """Return the next batch of the partition whose turn it is, or of the first after it that has one."""
        for _ in range(len(self._turn)):
            partition = self._turn.pop(0)
            self._turn.append(partition)
            rows = self._log.read(partition, self._position[partition], self._batch_bytes_max)
            if rows:
                self._position[partition] = rows[-1][0] + 1
                return partition, rows
        return None

    def drained(self, partition: TopicPartition) -> bool:
        """Whether everything that is in the log now was read."""
        return self._position[partition] >= self._log.bounds(partition)[1]
