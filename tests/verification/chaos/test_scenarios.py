"""Every scenario of the chaos tools, on both logs: real processes, real signals, real disks, real brokers."""

from pathlib import Path

import pytest

from grete.testing.broker import Broker
from tests.verification.chaos import troubles_of_brokers, troubles_of_disks, troubles_of_workers
from tests.verification.chaos.troubles_of_disks import can_mount

# starts of brokers and workers, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
FULL = ["full-state-disk", "full-log-disk"]
OF_DISKS = [name for name in troubles_of_disks.SCENARIOS if can_mount() or name not in FULL]


@pytest.mark.parametrize("name", troubles_of_workers.SCENARIOS)
def test_troubles_of_workers_on_the_embedded_log(tmp_path: Path, name: str) -> None:
    """Whatever happens to workers and to the directories of their states, each input comes out once."""
    assert troubles_of_workers.SCENARIOS[name](tmp_path / "job", "embedded", 1, rounds=2)


@pytest.mark.kafka
@pytest.mark.parametrize("name", troubles_of_workers.SCENARIOS)
def test_troubles_of_workers_on_kafka(tmp_path: Path, kafka_broker: Broker, name: str) -> None:
    """The same on a real broker, judged by a plain read_committed consumer."""
    assert troubles_of_workers.SCENARIOS[name](tmp_path / "job", f"kafka://{kafka_broker.bootstrap}", 1, rounds=1)


@pytest.mark.parametrize("name", OF_DISKS)
def test_troubles_of_disks(tmp_path: Path, name: str) -> None:
    """A full disk ends workers and loses nothing; a damaged file is noticed, or does not matter."""
    assert troubles_of_disks.SCENARIOS[name](tmp_path / "job", 1)


@pytest.mark.kafka
@pytest.mark.parametrize("name", troubles_of_brokers.SCENARIOS)
def test_troubles_of_brokers(tmp_path: Path, kafka_broker: Broker, name: str) -> None:
    """Brokers that die, stand still, refuse or lose a transaction: each input comes out once (A7, C4, S1)."""
    del kafka_broker  # asked for because it says whether jars can be had here; these brokers are to be killed
    assert troubles_of_brokers.SCENARIOS[name](tmp_path / "job", 1)
