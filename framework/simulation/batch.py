"""Many seeds: in turn or in several processes, added up."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count, islice

from framework.simulation.mutants import MUTANTS
from framework.simulation.run import Result, run_seed
from framework.simulation.world import make_plan

CHUNK = 8  # seeds handed to a process at a time
HUNT = 600  # seeds that a mutant may survive, of those whose world can show it


@dataclass(slots=True)
class Batch:
    """What a batch of seeds was."""

    seeds: int = 0
    steps: int = 0
    faults: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    seeds_with: Counter[str] = field(default_factory=Counter)  # counter -> seeds in which it is above zero
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """Add a run."""
        self.seeds += 1
        self.steps += result.steps
        self.faults += len(result.faults)
        self.counters += result.counters
        self.seeds_with.update(key for key, count in result.counters.items() if count)
        if result.violation is not None:
            self.failures.append(result)


@dataclass(frozen=True, slots=True)
class Kill:
    """How a mutant died: on which seed, after how many, on which invariant. ``seed`` None: it survived."""

    name: str
    seed: int | None
    tried: int
    violation: str = ""
    invariant: str = ""

    @property
    def expected(self) -> bool:
        """Whether it died, and on an invariant named for it."""
        return self.seed is not None and self.invariant in MUTANTS[self.name].killed_by


def run_seeds(seeds: Iterable[int], mutant: str | None = None, processes: int = 1) -> Iterator[Result]:
    """Yield the result of each seed, in order."""
    if processes <= 1:
        yield from (run_seed(seed, mutant) for seed in seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        numbers = iter(seeds)
        while many := list(islice(numbers, CHUNK * processes * 4)):
            yield from pool.map(run_seed, many, [mutant] * len(many), chunksize=CHUNK)


def run_batch(
    seeds: Iterable[int], mutant: str | None = None, processes: int = 1, progress: Callable[[Batch], None] | None = None
) -> Batch:
    """Run seeds and add them up; ``progress`` is told after each."""
    batch = Batch()
    for result in run_seeds(seeds, mutant, processes):
        batch.add(result)
        if progress is not None:
            progress(batch)
    return batch


def hunt(name: str, bound: int = HUNT) -> Kill:
    """Run seeds whose world can show a mutant's mistake, from 0 on, until one finds it on an invariant named for it."""
    each, tried, other = MUTANTS[name], 0, None
    for seed in count():
        if not each.shows(make_plan(seed)):
            continue
        tried += 1
        violation = run_seed(seed, name).violation
        if violation is not None:
            kill = Kill(name, seed, tried, str(violation), violation.name)
            if kill.expected:
                return kill
            other = other or kill
        if tried == bound:
            break
    return other or Kill(name, None, tried)
