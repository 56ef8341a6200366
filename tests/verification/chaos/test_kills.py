"""Short chaos runs: real processes, killed for real, judged by an independent consumer."""

from pathlib import Path

import pytest
from rich.console import Console

from framework.testing.broker import Broker
from tests.verification.chaos.kills import run
from tests.verification.chaos.outside import outside_of, place_of

# starts of brokers and workers, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def kill_some(directory: Path, log: str, kills: int) -> None:
    place = place_of(directory, log)
    outside = outside_of(place)
    try:
        tally, _, violations = run(outside, place, seed=5, kills=kills, console=Console(quiet=True))
    finally:
        outside.close()
    assert violations == []
    assert tally.kills >= kills
    assert tally.rolled_back > 0


def test_kills_on_the_embedded_log(tmp_path: Path) -> None:
    """Each input comes out once, in order, whatever dies where; and the state says the same (issue 5, in short)."""
    kill_some(tmp_path / "job", "embedded", 25)


@pytest.mark.kafka
def test_kills_on_kafka(tmp_path: Path, kafka_broker: Broker) -> None:
    """The same on a real broker (issue 4, in short)."""
    kill_some(tmp_path / "job", f"kafka://{kafka_broker.bootstrap}", 12)
