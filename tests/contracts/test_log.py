"""Our logs keep the contract of a log (framework/testing/contracts/log.py)."""

import os
from pathlib import Path

import pytest

from framework.logs.embedded import EmbeddedLog
from framework.logs.memory import MemoryLog, MemoryLogData
from framework.testing.broker import Broker
from framework.testing.contracts import FencedLogContract, LogContract, LogWorld
from tests.contracts.kafka_log import SettledKafkaLog

FENCING = ["embedded", "memory"]  # Kafka cannot compare and append: there, the core checks offsets (C3)
KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)


def world_of(kind: str, request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> LogWorld:
    """Return an empty log of that kind."""
    if kind == "memory":
        data = MemoryLogData(lambda: made.now_ms)
        made = LogWorld(lambda: MemoryLog(data), sets_clock=True)
    elif kind == "kafka":
        broker: Broker = request.getfixturevalue("kafka_broker")
        # no test makes a topic and uses it before the broker knows it: a topic that is not there is told at once
        monkeypatch.setattr("framework.logs.kafka.reader.SPREAD_S_MAX", 0.5)
        prefix = f"t{os.urandom(6).hex()}."
        made = LogWorld(lambda: SettledKafkaLog(broker.bootstrap, prefix))
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
