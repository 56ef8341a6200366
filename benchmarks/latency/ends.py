"""The two ends of the job on either log: who writes documents, and who reads changes, knows nothing of the job.

``LOG`` is ``kafka://host:port`` or the path of an embedded log.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from grete.logs.address import KAFKA
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition

READ_BYTES = 1 << 20


class Sender(Protocol):
    """Writes documents."""

    def send(self, partition: int, key: bytes, value: bytes) -> None:
        """Send one at once."""
        ...

    def flush(self) -> None:
        """Wait until all are in the log. Raises SystemExit if one is not."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class Receiver(Protocol):
    """Reads changes."""

    def take(self, timeout_s: float) -> Sequence[tuple[int, bytes, bytes]]:
        """Return the records that have come, as (partition, key, value); wait for one, no longer than this."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class _KafkaSender:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "enable.idempotence": True}
        )
        self._producer.list_topics(topic, timeout=10)
        self._failed: KafkaError | None = None

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        self._failed = self._failed or error

    def send(self, partition: int, key: bytes, value: bytes) -> None:
        self._producer.produce(self._topic, value, key, partition, self._delivered)
        self._producer.poll(0)

    def flush(self) -> None:
        if self._producer.flush(30) or self._failed is not None:
            raise SystemExit(f"the broker did not take all documents: {self._failed}")

    def close(self) -> None:
        self._producer.close()


class _KafkaReceiver:
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        own = {"group.id": "latency", "isolation.level": "read_committed", "enable.auto.commit": False}
        quick = {"fetch.queue.backoff.ms": 5, "fetch.wait.max.ms": 20, "fetch.error.backoff.ms": 10}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **own, **quick})
        self._consumer.list_topics(topic, timeout=10)
        self._consumer.assign([KafkaPartition(topic, number, 0) for number in range(partitions)])

    def take(self, timeout_s: float) -> Sequence[tuple[int, bytes, bytes]]:
        first = self._consumer.poll(timeout_s)
        if first is None:
            return ()
        messages = [first, *self._consumer.consume(5_000, 0)]
        return [(m.partition() or 0, m.key() or b"", m.value() or b"") for m in messages if m.error() is None]

    def close(self) -> None:
        self._consumer.close()


class _EmbeddedSender:
    def __init__(self, path: Path, topic: str) -> None:
        self._log = EmbeddedLog(path)
        self._topic = topic

    def send(self, partition: int, key: bytes, value: bytes) -> None:
        record = ExternalRecord(TopicPartition(self._topic, partition), key, value, time.time_ns() // 1_000_000)
        self._log.produce(0, 0, [record])
        self._log.poll()

    def flush(self) -> None:
        self._log.close()

    def close(self) -> None:
        self._log.close()


class _EmbeddedReceiver:
    def __init__(self, path: Path, topic: str, partitions: int) -> None:
        self._log = EmbeddedLog(path)
        self._next = {TopicPartition(topic, number): 0 for number in range(partitions)}

    def take(self, timeout_s: float) -> Sequence[tuple[int, bytes, bytes]]:
        self._log.wait(timeout_s * 1000)
        found = []
        for partition, offset in self._next.items():
            rows = self._log.read(partition, offset, READ_BYTES)
            if rows:
                self._next[partition] = rows[-1].offset + 1
                found += [(partition.partition, row.key or b"", row.value or b"") for row in rows]
        return found

    def close(self) -> None:
        self._log.close()


def sender(log: str, topic: str) -> Sender:
    """Return a sender that writes to a topic."""
    if log.startswith(KAFKA):
        return _KafkaSender(log.removeprefix(KAFKA), topic)
    return _EmbeddedSender(Path(log), topic)


def receiver(log: str, topic: str, partitions: int) -> Receiver:
    """Return a receiver that reads a topic from its start."""
    if log.startswith(KAFKA):
        return _KafkaReceiver(log.removeprefix(KAFKA), topic, partitions)
    return _EmbeddedReceiver(Path(log), topic, partitions)
