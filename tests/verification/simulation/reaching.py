"""Few seeds that reach each rare situation: ``python -m tests.verification.simulation.reaching`` finds them.

``make test`` runs these, the same each time. After a change of the core or of the worlds each seed is another run, and
the list may miss a situation: then the test takes more seeds, which costs time, until the command has found others.
"""

import sys
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.verification.simulation.batch import run_worlds
from tests.verification.simulation.counters import SOMETIMES

REACHING = Path(__file__).with_name("reaching.txt")  # a seed each line
FIRST = 33_100_000
SEEDS = 240  # that are tried


def reaching() -> list[int]:
    """Return the seeds of the list."""
    return [int(line) for line in REACHING.read_text("ascii").splitlines()]


class Met(NamedTuple):
    """The situations that the worlds of a seed meet, and their steps."""

    names: AbstractSet[str]
    steps: int


def chosen(met: Mapping[int, Met]) -> list[int]:
    """Return few seeds, with few steps, that meet each situation that any of them does."""
    missing = {name for each in met.values() for name in each.names}
    found = list[int]()
    while missing:
        best = max(met, key=lambda seed: (len(met[seed].names & missing) / met[seed].steps ** 0.5, -seed))
        missing -= met[best].names
        found.append(best)
    return sorted(found)


def _met(seed: int) -> tuple[int, Met]:
    results = [result for result in run_worlds(seed) if result.violation is None]
    counted = {name for each in results for name, count in each.counters.items() if count}
    return seed, Met(counted & SOMETIMES.keys(), sum(each.steps for each in results))


def find(seeds: Iterable[int]) -> list[int]:
    """Run seeds and return those that are chosen."""
    with ProcessPoolExecutor() as pool:
        return chosen(dict(pool.map(_met, seeds, chunksize=4)))


if __name__ == "__main__":
    found = find(range(FIRST, FIRST + SEEDS))
    REACHING.write_text("".join(f"{seed}\n" for seed in found), "ascii")
    sys.stdout.write(f"{len(found)} of {SEEDS} seeds, in {REACHING.name}\n")
