"""A stop of a healthy job ends soon: random jobs in all modes, their processes asked in any order (R6)."""

import pytest

from tests.verification.simulation.plan import WORLDS, World
from tests.verification.simulation.stops import run_stopped

SEEDS = (5, 11)  # aligned, both went on for ever before tasks knew that a producer has stopped


@pytest.mark.parametrize("world", WORLDS)
def test_a_stop_of_all_ends_within_three_intervals(world: World) -> None:
    """Sources close last checkpoints of their own; no task waits for one that will not come, and nothing is lost."""
    for seed in SEEDS:
        assert run_stopped(seed, world).seen["graceful stops"] > 0, seed
