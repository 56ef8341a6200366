"""Idle jobs on a machine so slow that a commit takes longer than a checkpoint interval: they come to rest (A1)."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.verification.simulation.plan import Plan, with_settings
from tests.verification.simulation.run import small_world
from tests.verification.simulation.scheduler import Simulation
from tests.verification.simulation.unkind import KIND
from tests.verification.simulation.world import make_plan

pytestmark = pytest.mark.check

IDLE_MS = 2_000
REST_MS = 60_000
MULTIPLES = 6  # 2, 4, 8, 16 and 32 s, and the one that was due when the rest began


class Resting(Simulation):
    """A world that goes on after its end, while nothing comes."""

    def idle(self, ms: int) -> Counter[int]:
        """Return the number of checkpoints that each task has committed in that time."""
        histories, until, closed = self.checker.histories, self.time.now + ms, Counter[int]()
        last = {task: history.checkpoint_id for task, history in histories.items()}
        while self.time.now < until:
            self._one_step()
            for task, history in histories.items():
                closed[task] += history.checkpoint_id != last[task]
                last[task] = history.checkpoint_id
        return closed


def slow(seed: int) -> Plan:
    """Return the job of a seed without faults: processes have a turn about once in an interval."""
    plan = with_settings(make_plan(seed), checkpoint_interval_ms=100, idle_checkpoint_interval_ms=IDLE_MS)
    plan = replace(plan, together=True, packed=2, pace=12.0, reluctance=(0.9,), standbys=False, wall=False)
    return replace(plan, faults=(), drain_faults=(), drained=False, unkind=KIND, builds=False)


@pytest.mark.parametrize("seed", [34_000_014, 34_000_017, 34_000_043])
def test_a_slow_job_comes_to_rest(seed: int) -> None:
    """Its sources close the multiples of the idle interval only, though all tasks are late with the ones before."""
    plan = slow(seed)
    simulation = Resting(plan)
    with small_world(plan.knobs):
        simulation.run()
        closed = simulation.idle(REST_MS)
    sources = [task for task, wiring in plan.wirings.items() if wiring.is_source]
    assert len(sources) > 1
    assert all(0 < closed[task] <= MULTIPLES for task in sources), closed
