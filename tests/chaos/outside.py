"""What stands outside of the job: who feeds it, and an independent consumer of what leaves it."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from framework.logs.embedded import EmbeddedLog
from framework.ports import ExternalRecord, Log
from framework.runtime.place import Place, prepare
from framework.settings import Settings
from protocol.ids import TopicPartition
from protocol.partitioner import partition_of
from tests.chaos.chain import PARTITIONS, entries, given, job

READ_BYTES = 1 << 18
Row = tuple[int, int, bytes, bytes]  # partition, offset, key, value


class Outside(Protocol):
    """A log, as those who are not the job see it."""

    @property
    def log(self) -> Log:
        """For looking into the job's own topics."""
        ...

    def feed(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Append (key, value) to the topic ``given``; when it returns they are there."""
        ...

    def arrived(self) -> Iterator[Row]:
        """Yield the entries that became visible since the last call."""
        ...

    def all(self, topic: str) -> Iterator[Row]:
        """Read a topic from its beginning."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class EmbeddedOutside:
    """Two more connections to the file, beside the workers' own."""

    def __init__(self, place: Place) -> None:
        """Make the job's topics."""
        self.log = EmbeddedLog(place.directory / "log.db")
        prepare(job, self.log, place, Settings())
        self._consumer = EmbeddedLog(place.directory / "log.db", create=False)
        self._positions = [0] * PARTITIONS

    def feed(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Append in one transaction."""
        records = [
            ExternalRecord(TopicPartition(given.name, partition_of(key, PARTITIONS)), key, value, 1)
            for key, value in rows
        ]
        self.log.produce_with_meta(records, {})

    def arrived(self) -> Iterator[Row]:
        """Read each partition on."""
        for partition in range(PARTITIONS):
            for row in self._read(entries.name, partition, self._positions[partition]):
                self._positions[partition] = row[1] + 1
                yield row

    def all(self, topic: str) -> Iterator[Row]:
        """Read each partition from its beginning to its end."""
        for partition in range(PARTITIONS):
            position = 0
            while rows := self._read(topic, partition, position):
                yield from rows
                position = rows[-1][1] + 1

    def close(self) -> None:
        """Close both."""
        self._consumer.close()
        self.log.close()

    def _read(self, topic: str, partition: int, position: int) -> list[Row]:
        rows = self._consumer.read(TopicPartition(topic, partition), position, READ_BYTES)
        return [(partition, offset, key or b"", value or b"") for offset, _, _, key, value, _ in rows]
