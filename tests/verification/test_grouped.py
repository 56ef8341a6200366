"""Worlds in which tasks read several partitions of a topic (A2f): kills, rollbacks, stalls, and what others have open.

`make simulate SEEDS=80000000..80001000` has more: half of them are of this form.
"""

import pytest

from tests.verification.simulation.plan import WORLDS, World
from tests.verification.simulation.run import run_seed
from tests.verification.simulation.world import make_plan

pytestmark = pytest.mark.check


@pytest.mark.parametrize("seed", [80_000_003, 80_000_012, 80_000_013, 80_000_039])
@pytest.mark.parametrize("world", WORLDS)
def test_tasks_that_read_several_partitions_lose_nothing(world: World, seed: int) -> None:
    """Each record leaves its outputs once, and each commit has the position of every partition of its task."""
    plan = make_plan(seed, world=world)
    external = [wiring.external for wiring in plan.wirings.values()]
    assert any(len(each) > len({partition.topic for partition in each}) for each in external)
    assert plan.faults
    assert str(run_seed(seed, world=world).violation) == "None"
