"""The log of a random job as those outside see it: it is fed, read, and it goes away for a while."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from grete.job.directory import JobDirectory
from grete.logs.address import KAFKA, LogAddress
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from tests.verification.chaos.cluster import NOTICED_SOON, Cluster

Row = tuple[TopicPartition, bytes, bytes, int]  # to, key, value, timestamp in ms
READ_BYTES = 1 << 20
FED_S_MAX = 60.0  # to a broker that is there
READ_S_MAX = 10.0


class DrawnLog(Protocol):
    """One log, of one job."""

    job_directory: JobDirectory

    def feed(self, rows: Sequence[Row]) -> None:
        """Append records; when it returns they are there. The log is not away."""
        ...

    def all_of(self, topic: str) -> list[tuple[str, bytes]]:
        """Return (key, value) of all that a reader of committed records gets."""
        ...

    def go_away(self) -> str:
        """Answer no question until ``come_back``; return how."""
        ...

    def come_back(self) -> None:
        """Answer again."""
        ...


class EmbeddedDrawnLog:
    """A file. It is away while somebody else holds its write lock."""

    def __init__(self, directory: Path) -> None:
        self.job_directory = JobDirectory(directory / "job")
        self._path = directory / "job" / "log.db"
        self._lock: sqlite3.Connection | None = None

    def feed(self, rows: Sequence[Row]) -> None:
        log = EmbeddedLog(self._path, create=False)
        records = [ExternalRecord(partition, key, value, at_ms) for partition, key, value, at_ms in rows]
        log.open_metadata("drawn").produce_with_meta(records, {})
        log.close()

    def all_of(self, topic: str) -> list[tuple[str, bytes]]:
        log, found = EmbeddedLog(self._path, create=False), []
        for number in range(log.partitions(topic) or 0):
            position = 0
            while rows := log.read(TopicPartition(topic, number), position, READ_BYTES):
                found += [((row.key or b"").decode(), row.value or b"") for row in rows]
                position = rows[-1].offset + 1
        log.close()
        return found

    def go_away(self) -> str:
        self._lock = sqlite3.connect(self._path, timeout=5.0, isolation_level=None)
        self._lock.execute("BEGIN IMMEDIATE")
        return "log locked"

    def come_back(self) -> None:
        assert self._lock is not None
        self._lock.rollback()
        self._lock.close()


class KafkaDrawnLog:
    """A broker of its own. It is away when it is dead, or frozen: then its connections stay open."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.job_directory = JobDirectory(directory / "job", address=LogAddress(KAFKA + cluster.bootstrap, None))
        self._cluster = cluster
        self._come_back: Callable[[int], None] = cluster.thaw
        self._servers = {"bootstrap.servers": cluster.bootstrap}
        self._producer = Producer({**self._servers, "enable.idempotence": True, "linger.ms": 0})

    def feed(self, rows: Sequence[Row]) -> None:
        refused: list[KafkaError] = []

        def told(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(error)

        for partition, key, value, at_ms in rows:
            self._producer.produce(
                partition.topic, value, key, partition=partition.partition, timestamp=at_ms, on_delivery=told
            )
        if self._producer.flush(FED_S_MAX) or refused:
            raise RuntimeError(f"inputs were not taken: {refused}")

    def all_of(self, topic: str) -> list[tuple[str, bytes]]:
        options = {"group.id": "chaos", "isolation.level": "read_committed", "auto.offset.reset": "error"}
        consumer = Consumer({**self._servers, **options, "enable.partition.eof": True})
        left = set(consumer.list_topics(topic, timeout=READ_S_MAX).topics[topic].partitions)
        consumer.assign([KafkaPartition(topic, partition, 0) for partition in left])
        found = []
        while left:
            message = consumer.poll(READ_S_MAX)
            if message is None:
                raise TimeoutError(f"{topic}: partitions {sorted(left)} have no end after {READ_S_MAX:.0f} s")
            error = message.error()
            if error is None:
                found.append(((message.key() or b"").decode(), message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
        consumer.close()
        return found

    def go_away(self) -> str:
        if self._come_back == self._cluster.thaw:  # in turn
            self._cluster.kill(0)
            self._come_back = self._cluster.start
            return "broker killed"
        self._cluster.freeze(0)
        self._come_back = self._cluster.thaw
        return "broker frozen"

    def come_back(self) -> None:
        self._come_back(0)

    def close(self) -> None:
        """Let go of the producer: one left to itself prints that its broker is gone."""
        self._producer.purge()
        self._producer.close()


@contextmanager
def drawn_log(kind: str, directory: Path) -> Iterator[DrawnLog]:
    """Make the log of a job below ``directory``: ``embedded``, or ``kafka`` for a broker of its own."""
    if kind != "kafka":
        yield EmbeddedDrawnLog(directory)
        return
    with Cluster(directory / "kafka", changed=NOTICED_SOON) as cluster:
        log = KafkaDrawnLog(directory, cluster)
        try:
            yield log
        finally:
            log.close()
