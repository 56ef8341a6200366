"""Many seeds: in turn or in several processes, added up."""

import gc
import os
import pickle
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import NoReturn

from tests.verification.simulation.kinder import KINDER
from tests.verification.simulation.mutants import MUTANTS
from tests.verification.simulation.plan import WORLDS
from tests.verification.simulation.run import Result, run_seed
from tests.verification.simulation.world import make_plan

CHUNK = 8  # seeds handed to a process at a time
AHEAD = 3  # chunks of a process that wait or run
HUNTS = 5  # of each mutant, for a median
HUNT_APART = 1_000_000  # seeds between the places where they begin
HUNT = 600  # seeds that a mutant may survive, of those whose world can show it
KILLS = Path(__file__).with_name("mutants") / "kills.txt"  # mutant, and a seed that kills it


@dataclass(slots=True)
class Batch:
    """The results of a batch of seeds: each has three worlds, a mutant one of them."""

    first: int | None = None  # seed
    seeds: int = 0
    steps: int = 0
    faults: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    seeds_with: Counter[str] = field(default_factory=Counter)  # counter -> seeds in which it is above zero
    failures: list[Result] = field(default_factory=list)
    _last: int | None = None

    def add(self, result: Result) -> None:
        """Add a run; the runs of a seed come one after another."""
        self.first = result.seed if self.first is None else self.first
        self.seeds += result.seed != self._last
        self._last = result.seed
        self.steps += result.steps
        self.faults += result.hits
        self.counters += result.counters
        self.seeds_with.update(key for key, count in result.counters.items() if count)
        if result.violation is not None:
            self.failures.append(result)


@dataclass(frozen=True, slots=True)
class Kill:
    """The death of a mutant: the seed, the number of seeds tried, the invariant. ``seed`` None: it survived."""

    name: str
    seed: int | None
    tried: int
    violation: str = ""
    invariant: str = ""
    steps: int = 0  # of the run in which it died

    @property
    def expected(self) -> bool:
        """Whether it died, and on an invariant named for it."""
        return self.seed is not None and self.invariant in MUTANTS[self.name].killed_by


def run_batch(
    seeds: Iterable[int],
    mutant: str | None = None,
    processes: int = 1,
    progress: Callable[[Batch], bool | None] = lambda _: None,
) -> Batch:
    """Run seeds and add them up, in order; ``progress`` is told after each, and ends the batch by returning False."""
    batch = Batch()
    with ExitStack() as stack:
        for result in _results(seeds, mutant, processes, stack):
            batch.add(result)
            if progress(batch) is False:
                break
    return batch


def _results(seeds: Iterable[int], mutant: str | None, processes: int, stack: ExitStack) -> Iterator[Result]:
    """Yield results in order. Few chunks are on their way at a time, so that an endless range is no trouble."""
    if processes <= 1:
        yield from (result for seed in seeds for result in run_worlds(seed, mutant))
        return
    pool = ProcessPoolExecutor(processes, initializer=_collect_no_garbage)
    stack.callback(pool.shutdown, cancel_futures=True)
    numbers, waiting = iter(seeds), deque[Future[list[Result]]]()
    while True:
        while len(waiting) < processes * AHEAD and (chunk := list(islice(numbers, CHUNK))):
            waiting.append(pool.submit(_run_chunk, chunk, mutant))
        if not waiting:
            return
        yield from waiting.popleft().result()


def _collect_no_garbage() -> None:
    """A run makes much that lives as long as the run: looking for garbage is a seventh of the time (measured)."""
    gc.freeze()
    gc.disable()


def _run_chunk(seeds: Sequence[int], mutant: str | None) -> list[Result]:
    """Run a few seeds in a process of their own: its end frees all at once, which a collection takes long for."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        _answer(writer, seeds, mutant)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        raw = answer.read()
    _, ended = os.waitpid(child, 0)
    if ended:
        code = os.waitstatus_to_exitcode(ended)
        raise ChildProcessError(f"seeds {seeds[0]} to {seeds[-1]}: their process ended with {code}")
    results: list[Result] = pickle.loads(raw)  # of our own child
    return results


def _answer(writer: int, seeds: Sequence[int], mutant: str | None) -> NoReturn:
    """Run seeds and write the results; then the process is over, whatever has happened."""
    ended = 1
    try:
        with os.fdopen(writer, "wb") as answer:
            pickle.dump([result for seed in seeds for result in run_worlds(seed, mutant)], answer)
        ended = 0
    except Exception:  # noqa: BLE001  # whatever it is, the process that waits says which seeds
        traceback.print_exc()
    finally:
        os._exit(ended)


def run_worlds(seed: int, mutant: str | None = None) -> list[Result]:
    """Run the worlds of a seed, or the one that a mutant lives in."""
    if mutant is not None:
        return [run_seed(seed, mutant)]
    return [run_seed(seed, world=world) for world in WORLDS]


def hunt(name: str, first: int = 0, bound: int = HUNT) -> Kill:
    """Run seeds whose world can show a mutant's mistake, from ``first`` on, until an invariant named for it breaks."""
    each, tried, other = MUTANTS[name], 0, None
    for seed in count(first):
        if not each.shows(make_plan(seed, world=each.world)):
            continue
        tried += 1
        result = run_seed(seed, name)
        if tried % CHUNK == 0:
            gc.collect()
        if result.violation is not None:
            kill = Kill(name, seed, tried, str(result.violation), result.violation.name, result.steps)
            if kill.expected:
                return kill
            other = other or kill
        if tried == bound:
            break
    return other or Kill(name, None, tried)


def known_kills() -> dict[str, int]:
    """Return mutant → a seed that kills it: of the kills of the last ``hunt_all``, the one with the shortest run."""
    return {name: int(seed) for name, seed in map(str.split, KILLS.read_text().splitlines())}


def find(name: str) -> Kill:
    """Hunt a mutant, but run the known seed first. After a change of the code it may find nothing: the hunt goes on."""
    seed = known_kills().get(name)
    if seed is not None:
        kill = hunt(name, seed, bound=1)
        if kill.expected:
            return kill
    return hunt(name)


def mend_known(processes: int) -> list[Kill]:
    """Hunt the mutants whose known seed does not kill them any more; write and return what was found.

    A change of the core or of the worlds makes another run of each seed. Then the test of each mutant hunts on its own.
    """
    known = known_kills()
    with ProcessPoolExecutor(processes, initializer=_collect_no_garbage) as pool:
        kills = {kill.name: kill for kill in _expected(pool.map(find, sorted(MUTANTS)))}
    mended = [kill for name, kill in kills.items() if kill.seed != known.get(name) and not _rank(kill)[0]]
    known |= {kill.name: kill.seed for kill in mended if kill.seed is not None}
    KILLS.write_text("".join(f"{name} {seed}\n" for name, seed in known.items()))
    return mended


def hunt_some(names: Sequence[str], first: int, processes: int) -> list[Kill]:
    """Hunt each of these mutants from that seed on."""
    with ProcessPoolExecutor(processes, initializer=_collect_no_garbage) as pool:
        return [*pool.map(partial(hunt, first=first), names)]


def hunt_all(processes: int, progress: Callable[[], None]) -> dict[str, list[Kill]]:
    """Hunt every mutant from each of HUNTS places, and write KILLS; ``progress`` is told after each hunt.

    In KILLS is the shortest death; of a mutant in KINDER, that of the seeds that are clean in a kinder world.
    """
    jobs = [(name, number * HUNT_APART) for name in MUTANTS for number in range(HUNTS)]
    kills: dict[str, list[Kill]] = {name: [] for name in MUTANTS}
    with ProcessPoolExecutor(processes, initializer=_collect_no_garbage) as pool:
        for kill in pool.map(hunt, *zip(*jobs, strict=True)):
            kills[kill.name].append(kill)
            progress()
    shortest = [min(found, key=_rank) for each in kills.values() if (found := _expected(each))]
    KILLS.write_text("".join(f"{kill.name} {kill.seed}\n" for kill in shortest))
    return kills


def _expected(kills: Iterable[Kill]) -> list[Kill]:
    return [kill for kill in kills if kill.expected]


def _rank(kill: Kill) -> tuple[bool, int]:
    """Return the rank of a kill: first comes the one that says most in the least time."""
    assert kill.seed is not None
    kinder = KINDER.get(kill.name)
    elsewhere = kinder is not None and run_seed(kill.seed, kill.name, kinder=kinder).violation is not None
    return elsewhere, kill.steps
