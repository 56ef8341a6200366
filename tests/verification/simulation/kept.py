"""Results of the simulator in docs/results/simulation.json: fresh seeds, added up by commit, and the hunts."""

from statistics import median
from typing import Any

from benchmarks.results import Cell, Kept, Run, Table, read, write
from benchmarks.running import taken
from tests.verification.simulation.batch import HUNTS, Batch, Kill

COUNTED = "Fresh seeds, of three worlds each"
COLUMNS = ["date", "commit", "seeds", "count", "steps", "faults that hit", "failures", "seconds of one core"]
HUNTED = "Mutants: how many, hunted from five first seeds each, and how many hunts ended without the death expected"


def keep_batch(done: Batch, cpu_seconds: float) -> None:
    """Add a batch of consecutive seeds to those that were counted."""
    kept, run = read("simulation"), taken()
    run.command = "make simulate SEEDS=A..B WRITE=1"
    rows = added(kept.runs[0].tables[0].rows, row_of(run, done, cpu_seconds))
    run.tables, run.notes = [Table(COUNTED, COLUMNS, rows)], [sum_of(rows)]
    write("simulation", Kept([run, *kept.runs[1:]], kept.cells))


def row_of(run: Run, done: Batch, cpu_seconds: float) -> list[Cell]:
    """Return the row of a batch of consecutive seeds."""
    first = done.first or 0
    figures = done.seeds, done.steps, done.faults, len(done.failures), round(cpu_seconds)
    return [run.date, run.commit, f"{first}..{first + done.seeds}", *figures]


def added(rows: list[list[Cell]], row: list[Cell]) -> list[list[Cell]]:
    """Return the rows with one more; one that goes on where the last one ended, at its date and commit, adds to it."""
    if not rows or rows[-1][:2] != row[:2]:
        return [*rows, row]
    (begin, middle), (goes_on, end) = (str(each[2]).split("..") for each in (rows[-1], row))
    if middle != goes_on:
        return [*rows, row]
    figures: list[Any] = [old + new for old, new in zip(rows[-1][3:], row[3:], strict=True)]  # type: ignore[operator]  # numbers
    return [*rows[:-1], [*row[:2], f"{begin}..{end}", *figures]]


def sum_of(rows: list[list[Cell]]) -> str:
    """Return the sums of all rows, in a sentence."""
    count, steps, _, failures = (sum(int(row[at] or 0) for row in rows) for at in range(3, 7))
    return f"In all {count:,} seeds, {steps:,} steps, {failures:,} failures."


def keep_hunts(kills: dict[str, list[Kill]], cpu_seconds: float) -> None:
    """Put the seeds that the hunts of all mutants took into the file, for the table of docs/SIMULATION.md."""
    kept, run = read("simulation"), taken()
    lost = sum(not kill.expected for each in kills.values() for kill in each)
    cells = []
    for name, each in kills.items():
        tried = [kill.tried for kill in each]
        found = {"mutant": name, "died_on": sorted({kill.invariant for kill in each})}
        cells.append(found | {"seeds_median": round(median(tried)), "seeds_most": max(tried)})
    columns = ["mutants", "hunts", "not as expected", "minutes of one core"]
    run.command = "make simulate MUTANTS=1 WRITE=1"
    run.tables = [Table(HUNTED, columns, [[len(kills), HUNTS * len(kills), lost, round(cpu_seconds / 60)]])]
    write("simulation", Kept([kept.runs[0], run], cells))
