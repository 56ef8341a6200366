"""Others have transactions open in inputs for up to half an hour of the simulator's time, under each guarantee."""

from tests.verification.simulation.losses import GUARANTEES, run_losing
from tests.verification.simulation.run import run_seed
from tests.verification.simulation.unkind import HELD_MS
from tests.verification.simulation.world import make_plan

SEED = 35_000_483
OPENED = "transactions of others in inputs"


def test_an_input_waits_for_half_an_hour_under_each_guarantee() -> None:
    """Processes die and sleep meanwhile; what comes behind the transaction is taken once it has ended."""
    assert make_plan(SEED, world="deterministic").unkind.stranger_ms == make_plan(SEED).unkind.stranger_ms == HELD_MS
    deterministic = run_seed(SEED, world="deterministic")
    assert deterministic.violation is None
    assert deterministic.counters[OPENED]
    for guarantee in GUARANTEES:
        lossy = run_losing(SEED, guarantee)
        assert lossy is not None
        assert lossy.seen[OPENED]
