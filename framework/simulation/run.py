"""``run_seed``: one run from its seed, the same in every process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from framework.core import start
from framework.runtime import journal
from framework.simulation.mutants import MUTANTS, applied
from framework.simulation.oracle import Violation
from framework.simulation.scheduler import Simulation
from framework.simulation.world import Knobs, Plan, make_plan


@dataclass(slots=True)
class Result:
    """What a run was. ``digest`` covers every message, fault and end of a process, in order."""

    seed: int
    plan: Plan
    digest: int
    steps: int
    faults: list[str]
    counters: Counter[str]
    violation: Violation | None
    trace: list[str] = field(default_factory=list)  # the last lines, if there is a violation


@contextmanager
def small_world(knobs: Knobs) -> Iterator[None]:
    """Make the fixed sizes of production small for the time of a run."""
    before = journal.SWEEP_KEYS_MIN, journal.SWEEP_BYTES_MIN, journal.MESSAGE_BYTES_MAX, start.TAIL
    journal.SWEEP_KEYS_MIN, journal.SWEEP_BYTES_MIN, journal.MESSAGE_BYTES_MAX = (
        knobs.sweep_keys,
        knobs.sweep_bytes,
        knobs.data_bytes,
    )
    start.TAIL = knobs.tail
    try:
        yield
    finally:
        journal.SWEEP_KEYS_MIN, journal.SWEEP_BYTES_MIN, journal.MESSAGE_BYTES_MAX, start.TAIL = before


def run_seed(seed: int, mutant: str | None = None) -> Result:
    """Run a seed. A violation is in the result; nothing is raised but for an unknown mutant (KeyError)."""
    plan = make_plan(seed) if mutant is None else MUTANTS[mutant].focus(make_plan(seed))
    violation = None
    with ExitStack() as stack:
        stack.enter_context(small_world(plan.knobs))
        if mutant is not None:
            stack.enter_context(applied(mutant))
        simulation = Simulation(plan)
        try:
            simulation.run()
        except Violation as error:
            violation = error
    counters = simulation.seen + simulation.checker.seen + simulation.log.seen
    return Result(
        seed=seed,
        plan=plan,
        digest=simulation.trace.digest,
        steps=simulation.step,
        faults=simulation.faults,
        counters=counters,
        violation=violation,
        trace=simulation.trace.lines() if violation is not None else [],
    )
