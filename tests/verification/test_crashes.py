"""docs/explanation/crashes.md is true: a row for each touch of the outside, a kill at its two sides, all recovered."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from grete.execution.engine import driver
from tests.verification.simulation.boundary import CALLS, EARLY_CALLS, LOGICAL_CALLS, SIDES, Ambush
from tests.verification.simulation.fault_plan import DAMAGES, EMPTIED, Fault
from tests.verification.simulation.forms import with_early_sinks
from tests.verification.simulation.mutants.registry import unchanged
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.plan import WORLDS, Cut, Plan, World, with_settings
from tests.verification.simulation.run import small_world
from tests.verification.simulation.scheduler import Simulation
from tests.verification.simulation.world import make_plan

ROOT = Path(__file__).parents[2]
SMALL = Cut(records=8, tasks=2)


def spills(plan: Plan) -> bool:
    """Whether early records of this world go to disk."""
    return plan.aligned and plan.settings.early_memory_bytes_max == 0 < plan.settings.early_bytes_max


# calls that not every world has
SHOWS: dict[str, Callable[[Plan], bool]] = {
    "produce": lambda plan: not plan.aligned and bool(plan.out_partitions),
    "send watermark": lambda plan: plan.aligned and plan.timers and bool(plan.topology.streams),
    "send note": lambda plan: plan.timers and len(plan.inputs) > 1,
    "spill": spills,
    "read a spilled frame": spills,
} | {call: lambda plan: bool(plan.files) for call in ("open sink", "begin file", "write file", "name file")}


def often_idle(plan: Plan) -> Plan:
    """Return the world with inputs that are idle as soon as nothing is there."""
    return with_settings(plan, event_time_idle_ms=5)


OFTEN: dict[str, Callable[[Plan], Plan]] = {"send note": often_idle, **dict.fromkeys(EARLY_CALLS, with_early_sinks)}

# A world of this size begins some four files: there, the first crossing is waited for, not the second.
FEW = ("begin file", "write file", "name file")


def rows() -> list[list[str]]:
    """Return the cells of the table's rows."""
    lines = (ROOT / "docs" / "explanation" / "crashes.md").read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]


def test_the_table_has_a_row_for_each_call() -> None:
    """A touch of the outside that is new has no row yet, one that is gone has one too many."""
    assert [row[0] for row in rows()] == [*CALLS, *LOGICAL_CALLS, *EARLY_CALLS]
    assert all(len(row) == 4 and all(row) for row in rows())


def test_the_tests_in_the_table_exist() -> None:
    """A row names the test that shows it; a test that was renamed would leave it empty."""
    paths = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "framework" / "testing" / "contracts").glob("*.py")]
    files = {path.name: path.read_text() for path in paths}
    named = [row[3].split("::") for row in rows()]
    assert [f"{file}::{test}" for file, test in named if not re.search(rf"def {test}\(", files.get(file, ""))] == []


def lay_next(ambush: Ambush, sides: Iterator[str], call: str) -> None:
    """Wait at the first or second crossing of the next side, if there is one."""
    side = next(sides, None)
    if side is not None:
        ambush.lay(side, call, 1 if call in FEW else 2)


@pytest.mark.parametrize("call", [*CALLS, *LOGICAL_CALLS, *EARLY_CALLS])
def test_a_crash_at_each_call_is_recovered(call: str) -> None:
    """Processes are killed before a call and after one; no invariant breaks, and everything is committed in the end.

    A task among others may fail alone there, and its process lives: so each side comes twice.
    """
    before, after = (f"crash {side} {call}" for side in SIDES)
    for seed in range(400):
        plan = SMALL.of(make_plan(seed, SMALL, "aligned" if call in CALLS else "deterministic"))
        plan = OFTEN.get(call, unchanged)(plan)
        if plan.damaged or (call in SHOWS and not SHOWS[call](plan)):
            continue
        simulation = Simulation(plan)
        simulation.ambush.hit = partial(lay_next, simulation.ambush, iter(SIDES * 2), call)
        simulation.ambush.hit()
        with small_world(plan.knobs):
            simulation.run()
        if simulation.seen[before] and simulation.seen[after]:
            return
    pytest.fail(f"no world in which processes die before and after {call}")


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damage_halts_and_never_corrupts(kind: str) -> None:
    """A log that loses or changes what it acknowledged stops a task (decision 0011); what is committed stays right."""
    for seed in range(60):
        plan = make_plan(seed, SMALL)
        if not plan.aligned or not plan.topology.streams:
            continue
        then = [Fault(n, 0.3 + n / 100, "stale or wiped store", seed + n) for n in range(1, 6)]
        simulation = Simulation(replace(plan, faults=(Fault(0, 0.3, kind, seed), *then), damaged=True))
        with small_world(plan.knobs):
            simulation.run()
        if simulation.seen["halts after a damage"]:
            return
    pytest.fail(f"no world in which a {kind} stops a task")


@pytest.mark.parametrize("world", WORLDS)
def test_a_changelog_that_was_emptied_halts_its_task(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumers know what it has sent, and would drop what it sends then; unless it looks, it goes on."""
    for seed in range(60):
        plan = replace(make_plan(seed, SMALL, world), faults=(Fault(0, 0.4, EMPTIED, seed),), damaged=True)
        simulation = Simulation(plan)
        with small_world(plan.knobs):
            simulation.run()
            if not simulation.must_halt:
                continue
            monkeypatch.setattr(driver, "sent_before", lambda *_, **__: None)
            monkeypatch.setattr(Simulation, "rest", 10)
            with pytest.raises(Violation):
                Simulation(plan).run()
        return
    pytest.fail("no world in which a changelog can be emptied")
