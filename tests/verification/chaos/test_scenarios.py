"""Every scenario of the chaos tools, on both logs: real processes, real signals, real disks, real brokers."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grete.testing.broker import Broker
from tests.verification.chaos import troubles_of_brokers, troubles_of_disks, troubles_of_workers
from tests.verification.chaos.cluster import Cluster
from tests.verification.chaos.troubles_of_disks import can_mount

# starts of brokers and workers, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
FULL = ["full-state-disk", "full-log-disk"]
OF_DISKS = [name for name in troubles_of_disks.SCENARIOS if can_mount() or name not in FULL]


def wide(names: Iterable[str], *searched: str) -> list[Any]:
    """Return the names as parameters; those ``searched`` are of `make prove`."""
    return [pytest.param(name, marks=pytest.mark.prove if name in searched else ()) for name in names]


@pytest.mark.parametrize("name", troubles_of_workers.SCENARIOS)
def test_troubles_of_workers_on_the_embedded_log(tmp_path: Path, name: str) -> None:
    """Each input comes out once, through troubles of workers and of their state directories."""
    assert troubles_of_workers.SCENARIOS[name](tmp_path / "job", "embedded", 1, rounds=2)


@pytest.mark.kafka
@pytest.mark.parametrize("name", wide(troubles_of_workers.SCENARIOS, "flushed-store", "older-state"))
def test_troubles_of_workers_on_kafka(tmp_path: Path, kafka_broker: Broker, name: str) -> None:
    """The same on a real broker, judged by a plain read_committed consumer."""
    assert troubles_of_workers.SCENARIOS[name](tmp_path / "job", f"kafka://{kafka_broker.bootstrap}", 1, rounds=1)


@pytest.mark.parametrize("name", OF_DISKS)
def test_troubles_of_disks(tmp_path: Path, name: str) -> None:
    """A full disk ends workers and loses nothing; a damaged file is noticed, or does not matter."""
    assert troubles_of_disks.SCENARIOS[name](tmp_path / "job", 1)


@pytest.fixture(scope="module")
def own_broker(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that these tests may freeze and set, and leave as it was; the other one says whether jars are here."""
    del kafka_broker
    with Cluster(tmp_path_factory.mktemp("own") / "kafka", changed=troubles_of_brokers.SHARED) as made:
        yield made


@pytest.mark.kafka
@pytest.mark.parametrize("name", troubles_of_brokers.SHARING)
def test_troubles_of_a_broker(tmp_path: Path, own_broker: Cluster, name: str) -> None:
    """It is frozen, refuses or ends a transaction: each input comes out once (A7, C4, S1)."""
    assert troubles_of_brokers.SHARING[name](tmp_path / "job", 1, own_broker)


@pytest.mark.kafka
@pytest.mark.parametrize("name", wide(troubles_of_brokers.KILLING, "broker-killed"))
def test_killed_brokers(tmp_path: Path, kafka_broker: Broker, name: str) -> None:
    """The only one, which comes back, or the leader of three: each input comes out once."""
    del kafka_broker  # it says whether jars can be had here; these brokers are to be killed
    assert troubles_of_brokers.KILLING[name](tmp_path / "job", 1)
