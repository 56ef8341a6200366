"""The outside of the job: its feeder, and an independent consumer of its outputs."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from grete.job.directory import JobDirectory
from grete.logs.address import KAFKA, LogAddress
from grete.ports import ExternalRecord, Log
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from tests.verification.chaos.chain import PARTITIONS, ChainJob, chain_job

READ_BYTES = 1 << 18
CONSUME = 2_000  # messages at once
FLUSH_S_MAX = 90.0  # a broker may be frozen meanwhile
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


class PortOutside:
    """Two more connections to a log that is not Kafka, beside the workers' own."""

    def __init__(self, job_directory: JobDirectory) -> None:
        """Make the job's topics."""
        self.log = job_directory.open_log(group="chaos")
        self._names = names = names_at(job_directory)
        prepare(names.job, self.log, job_directory, Settings())
        self._consumer = job_directory.open_log(group="chaos")
        self._positions = [0] * PARTITIONS

    def feed(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Append in one transaction."""
        records = [
            ExternalRecord(TopicPartition(self._names.given, partition_of(key, PARTITIONS)), key, value, 1)
            for key, value in rows
        ]
        self.log.open_metadata(self._names.job.name).produce_with_meta(records, {})

    def arrived(self) -> Iterator[Row]:
        """Read each partition on."""
        for partition in range(PARTITIONS):
            for row in self._read(self._names.entries, partition, self._positions[partition]):
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


class KafkaOutside:
    """A producer and a plain consumer with ``read_committed``, as any program has them."""

    def __init__(self, job_directory: JobDirectory, names: ChainJob | None = None) -> None:
        """Make the topics of the chain job, of the place's own names if none are given."""
        self.log = job_directory.open_log(group="chaos")
        self._names = names = names or names_at(job_directory)
        prepare(names.job, self.log, job_directory, Settings(), {names.given})
        self._servers = job_directory.address.url.removeprefix(KAFKA)
        self._producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 0})
        self._consumer = self._reading(names.entries)

    def feed(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Append, and wait until the broker has them."""
        refused: list[KafkaError] = []
        for key, value in rows:
            self._producer.produce(
                self._names.given,
                value,
                key,
                partition=partition_of(key, PARTITIONS),
                on_delivery=lambda error, _message: refused.append(error) if error is not None else None,
            )
        if self._producer.flush(FLUSH_S_MAX) or refused:
            raise RuntimeError(f"inputs were not taken: {refused}")

    def arrived(self) -> Iterator[Row]:
        """Take what has been fetched."""
        for message in self._consumer.consume(CONSUME, 0):
            row = _row(message)
            if row is not None:
                yield row

    def all(self, topic: str) -> Iterator[Row]:
        """Read each partition from its beginning to its end, by another consumer."""
        consumer = self._reading(topic)
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            for message in consumer.consume(CONSUME, 0.05):
                row, error = _row(message), message.error()
                if row is not None:
                    yield row
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
        consumer.close()

    def close(self) -> None:
        """Close all clients: a producer left to itself prints that its broker is gone, into any later test's output."""
        self._producer.purge()
        self._producer.close()
        self._consumer.close()
        self.log.close()

    def _reading(self, topic: str) -> Consumer:
        options = {
            "bootstrap.servers": self._servers,
            "group.id": "chaos",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
        consumer = Consumer(options)
        consumer.assign([KafkaPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        return consumer


def _row(message: Message) -> Row | None:
    """Return a record, None for the end of a partition. What is in passing (a broker is down) comes to nothing, too."""
    error = message.error()
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF and not error.retriable():
            raise KafkaException(error)
        return None
    return message.partition() or 0, message.offset() or 0, message.key() or b"", message.value() or b""


def names_at(job_directory: JobDirectory) -> ChainJob:
    """Return the chain job of a place: on a broker, which has many places' topics, with a name of its own."""
    digest = hashlib.blake2b(os.fsencode(job_directory.directory.absolute()), digest_size=5).hexdigest()
    return chain_job("" if job_directory.address.embedded else f"-{digest}")


def outside_of(job_directory: JobDirectory) -> Outside:
    """Return the outside of the log at a place."""
    return KafkaOutside(job_directory) if job_directory.address.on_kafka else PortOutside(job_directory)


def place_of(directory: Path, log: str, config: Path | None = None) -> JobDirectory:
    """Return the place of a job on a log; ``config`` is a file of librdkafka's options."""
    return JobDirectory(directory, address=LogAddress(log, config))
