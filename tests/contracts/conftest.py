"""Each log that there is, empty, for the contract tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from framework.logs.embedded import EmbeddedLog
from framework.logs.memory import MemoryLog, MemoryLogData
from framework.ports import Log
from framework.testing.broker import Broker
from tests.contracts.kafka_log import SettledKafkaLog
from tests.contracts.worlds import World

KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)


@pytest.fixture(params=["embedded", "memory", KAFKA])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """An empty log with the topics ``a`` (two partitions) and ``out`` (one)."""
    if request.param == "memory":
        data = MemoryLogData(lambda: made.now_ms)
        made = World(lambda _: MemoryLog(data))
    elif request.param == "kafka":
        broker: Broker = request.getfixturevalue("kafka_broker")
        prefix = f"t{os.urandom(6).hex()}."
        made = World(lambda _: SettledKafkaLog(broker.bootstrap, prefix), own_clock=True)
    else:
        made = World(lambda _: EmbeddedLog(tmp_path / "log.db"))
        monkeypatch.setattr("time.time_ns", lambda: made.now_ms * 1_000_000)
    log = made.open()
    log.create_topic("a", 2)
    log.create_topic("out", 1, plain=True)
    yield made
    made.close()


@pytest.fixture
def log(world: World) -> Log:
    """One connection."""
    return world.open()
