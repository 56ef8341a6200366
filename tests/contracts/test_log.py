"""Our logs keep the contract of a log (framework/testing/contracts/log.py)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from grete.logs.embedded import EmbeddedLog
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from grete.testing.contracts import FencedLogContract, LogContract, LogWorld
from tests.contracts.kafka_log import SettledKafkaLog
from tests.worker.workers import LIMIT_S

FENCING = ["embedded", "memory"]  # Kafka cannot compare and append: there, the core checks offsets (C3)
KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)


def begun(broker: Broker, record: ExternalRecord) -> Callable[[], None]:
    """Append a record in a transaction of another program's; return what commits it."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": record.partition.topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(
        record.partition.topic,
        record.value,
        record.key,
        record.partition.partition,
        timestamp=record.timestamp_ms,
    )
    assert producer.flush(LIMIT_S) == 0
    return producer.commit_transaction


def world_of(kind: str, request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> LogWorld:
    """Return an empty log of that kind."""
    if kind == "memory":
        data = MemoryLogData(lambda: made.now_ms)

        def begin(record: ExternalRecord) -> Callable[[], None]:
            data.begin_transaction(record.partition)
            data.append(record.partition, *record[1:])
            return lambda: data.end_transaction(record.partition)

        made = LogWorld(lambda: MemoryLog(data), sets_clock=True, begin=begin)
    elif kind == "kafka":
        broker: Broker = request.getfixturevalue("kafka_broker")
        # no test makes a topic and uses it before the broker knows it: a topic that is not there is told at once
        monkeypatch.setattr("grete.logs.kafka.read.reader.SPREAD_S_MAX", 0.5)
        prefix = f"t{os.urandom(6).hex()}."
        made = LogWorld(
            lambda: SettledKafkaLog(broker.bootstrap, prefix),
            begin=lambda record: begun(broker, record._replace(partition=TopicPartition(prefix + "out", 0))),
        )
    else:
        made = LogWorld(lambda: EmbeddedLog(path / "log.db"), sets_clock=True)
        monkeypatch.setattr("time.time_ns", lambda: made.now_ms * 1_000_000)
    return made


class TestLogs(LogContract):
    """All of them."""

    @pytest.fixture(params=[*FENCING, KAFKA])
    def world(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogWorld:
        """Each log that there is."""
        return world_of(request.param, request, tmp_path, monkeypatch)


class TestFencingLogs(FencedLogContract):
    """Those that compare and append."""

    @pytest.fixture(params=FENCING)
    def world(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogWorld:
        """Each of them."""
        return world_of(request.param, request, tmp_path, monkeypatch)
