"""Few worlds that reach each rare situation: ``python -m tests.verification.simulation.reaching`` finds them.

``make test`` runs these, the same each time. After a change of the core or of the worlds each seed is another run, and
the list may miss a situation: then the test takes more seeds, which costs time, until the command has found others.
"""

import sys
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.verification.simulation.batch import Batch
from tests.verification.simulation.counters import SOMETIMES
from tests.verification.simulation.plan import WORLDS, World
from tests.verification.simulation.run import run_seed

REACHING = Path(__file__).with_name("reaching.txt")  # a seed and one of its worlds each line
FIRST = 33_100_000
SEEDS = 240  # that are tried

Place = tuple[int, World]  # where a situation is met: a seed, and one of its worlds
P = TypeVar("P", int, Place)


def reaching() -> list[Place]:
    """Return the seeds of the list, each with one of its worlds."""
    named = {world: world for world in WORLDS}
    rows = (line.split() for line in REACHING.read_text("ascii").splitlines())
    return [(int(seed), named[world]) for seed, world in rows]  # type: ignore[index]  # a wrong one is a KeyError


def run_few() -> Batch:
    """Run the worlds of the list and add them up."""
    batch = Batch()
    for seed, world in reaching():
        batch.add(run_seed(seed, world=world))
    return batch


class Met(NamedTuple):
    """The situations that a world meets, and its steps."""

    names: AbstractSet[str]
    steps: int


def chosen(met: Mapping[P, Met]) -> list[P]:
    """Return few worlds, with few steps, that meet each situation that any of them does."""
    missing = {name for each in met.values() for name in each.names}
    found = list[P]()
    while missing:
        best = max(met, key=lambda place: len(met[place].names & missing) / met[place].steps ** 0.5)
        missing -= met[best].names
        found.append(best)
    return sorted(found)


def _met(seed: int) -> dict[Place, Met]:
    results = [run_seed(seed, world=world) for world in WORLDS]
    return {
        (seed, each.world): Met({name for name, count in each.counters.items() if count} & SOMETIMES.keys(), each.steps)
        for each in results
        if each.violation is None
    }


def find(seeds: Iterable[int]) -> list[Place]:
    """Run seeds and return the worlds that are chosen."""
    with ProcessPoolExecutor() as pool:
        return chosen({place: met for each in pool.map(_met, seeds, chunksize=4) for place, met in each.items()})


if __name__ == "__main__":
    found = find(range(FIRST, FIRST + SEEDS))
    REACHING.write_text("".join(f"{seed} {world}\n" for seed, world in found), "ascii")
    sys.stdout.write(f"{len(found)} worlds of {SEEDS} seeds, in {REACHING.name}\n")
