"""Short chaos runs: real processes, killed for real, judged by an independent consumer."""

from pathlib import Path

import pytest
from rich.console import Console

from grete.testing.broker import Broker
from tests.verification.chaos.kills import run
from tests.verification.chaos.outside import outside_of, place_of

# starts of brokers and workers, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


RUNS_MAX = 12  # on a busy machine all kills of one may come at moments at which nothing is to be rolled back


def kill_some(directory: Path, log: str, kills: int) -> None:
    rolled_back = 0
    for number in range(RUNS_MAX):
        place = place_of(directory / str(number), log)
        outside = outside_of(place)
        try:
            tally, _, violations = run(outside, place, seed=5 + number, kills=kills, console=Console(quiet=True))
        finally:
            outside.close()
        assert violations == []
        assert tally.kills >= kills
        rolled_back += tally.rolled_back
        if rolled_back:
            return
    pytest.fail(f"{RUNS_MAX} runs of {kills} kills rolled back nothing")


def test_kills_on_the_embedded_log(tmp_path: Path) -> None:
    """Each input comes out once, in order, whatever dies where; and the state says the same (issue 5, in short)."""
    kill_some(tmp_path / "job", "embedded", 12)


@pytest.mark.kafka
def test_kills_on_kafka(tmp_path: Path, kafka_broker: Broker) -> None:
    """The same on a real broker (issue 4, in short)."""
    kill_some(tmp_path / "job", f"kafka://{kafka_broker.bootstrap}", 8)
