"""A reading half of a log that hands each question on to another one: the base of those that change a few answers."""

from collections.abc import Iterable, Mapping, Sequence

from grete.open_transaction import OpenTransaction
from grete.ports import LogReader, LogRow
from grete.protocol.ids import TopicPartition


class DelegatingReader:
    """grete.ports.LogReader over another one, ``log``."""

    def __init__(self, log: LogReader) -> None:
        self.log = log

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """As the log."""
        return self.log.read(partition, offset, max_bytes)

    def partitions(self, topic: str) -> int | None:
        """As the log."""
        return self.log.partitions(topic)

    def topics(self) -> Sequence[str]:
        """As the log."""
        return self.log.topics()

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """As the log."""
        return self.log.bounds(partition)

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """As the log."""
        return self.log.all_bounds(partitions)

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """As the log."""
        return self.log.open_transactions(partitions)

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """As the log."""
        self.log.expect(spans)

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """As the log."""
        return self.log.at_hand(partition, offset)

    def leave(self, partition: TopicPartition) -> None:
        """As the log."""
        self.log.leave(partition)

    def close(self) -> None:
        """As the log."""
        self.log.close()
