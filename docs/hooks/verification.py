"""The tables of the simulation page, from its code: invariants, faults, what must happen, mutants."""

from benchmarks.results import read
from docs.hooks.markdown import code, one_line, summary, table
from tests.verification.simulation.counters import SOMETIMES
from tests.verification.simulation.fault_plan import (
    DAMAGES,
    EMPTIED,
    HOURS,
    KINDS,
    LOGICAL_DAMAGES,
    UNKIND,
    UNKIND_SHARE,
)
from tests.verification.simulation.faults import FAULTS
from tests.verification.simulation.kinder import UNKINDNESSES
from tests.verification.simulation.mutants import MUTANTS
from tests.verification.simulation.rules import INVARIANTS


def invariants() -> str:
    """Return each invariant with its rule."""
    return table(("name", "rule"), INVARIANTS.items())


def faults() -> str:
    """Return each fault with its share of all, damages last."""
    whole = sum(KINDS.values())
    shares = {name: f"{100 * weight / whole:.0f} %" for name, weight in KINDS.items()}
    shares |= dict.fromkeys(UNKIND, f"more, in {100 * UNKIND_SHARE:.0f} % of the worlds")
    shares[HOURS] = "more, in worlds whose checkpoints are minutes apart"
    shares[EMPTIED] = "a damage, in worlds of its own test"
    rows = [
        (name, summary(FAULTS[name].__doc__), shares.get(name, "a damage"))
        for name in (*KINDS, *UNKIND, HOURS, *DAMAGES, *LOGICAL_DAMAGES, EMPTIED)
    ]
    return table(("fault", "what it does", "share"), rows)


def rare_things() -> str:
    """Return the table of all that must happen at least once in a batch."""
    return table(("counter", "what has happened"), SOMETIMES.items())


def mutants() -> str:
    """Return each mutant with its mistake, the invariants named for it, and the seeds that its last hunts took."""
    last = {cell["mutant"]: cell for cell in read("simulation").cells}
    rows = []
    for name, mutant in MUTANTS.items():
        hunts = last.get(name, {})
        seeds = [str(hunts.get(figure, "–")) for figure in ("seeds_median", "seeds_most")]
        rows.append((code(name), one_line(mutant.mistake), ", ".join(sorted(mutant.killed_by)), *seeds))
    return table(("mutant", "mistake", "dies on", "seeds, median", "most"), rows)


def unkindnesses() -> str:
    """Return each way in which worlds are unkind, what counts it, and the mutants that die of it."""
    rows = [
        (each.what, "; ".join(each.counters), ", ".join(code(name) for name in each.mutants)) for each in UNKINDNESSES
    ]
    return table(("unkindness", "counted as", "mutants that die of it"), rows)
