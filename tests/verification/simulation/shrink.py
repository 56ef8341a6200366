"""Makes a failure smaller: fewer tasks, records and faults, as long as the same invariant breaks."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.verification.simulation.plan import WHOLE, Cut
from tests.verification.simulation.run import Result, run_seed

RUNS_MAX = 150  # tries; a run takes a fraction of a second


def shrink(found: Result, mutant: str | None = None, tried: Callable[[], None] = lambda: None) -> Result:
    """Return the smallest run in which the invariant that ``found`` breaks was found to break, too.

    First the job (tasks of a stage), then its inputs, then the faults: in halves, then one by one. A cut world is
    another world as soon as it differs, so each try is a run of its own; ``tried`` is told of each.
    """
    assert found.violation is not None
    best, name = found, found.violation.name
    cuts = _Cuts(found.happened)
    for _ in range(RUNS_MAX):
        cut = cuts.next(best.cut)
        if cut is None:
            break
        tried()
        result = run_seed(found.seed, mutant, cut, world=found.world)
        if result.violation is not None and result.violation.name == name:
            best = result
            cuts.taken(result.happened)
    return best


class _Cuts:
    """Proposes the next smaller cut of the smallest run so far."""

    def __init__(self, happened: tuple[int, ...]) -> None:
        self._faults = happened  # those that are still needed, as far as is known
        self._chunk = max(1, len(happened) // 2)
        self._at = 0
        self._sizes: Iterator[tuple[str, int | None]] = iter(
            [("tasks", 1), ("tasks", 2), *(("records", count) for count in (1, 2, 4, 8))]
        )
        self._found: set[str] = set()  # of tasks and records, what has been cut
        self._last = ""

    def taken(self, happened: tuple[int, ...]) -> None:
        """The last proposal broke the same invariant; these faults happened in it."""
        self._found.add(self._last)
        if self._last == "faults":
            self._at -= self._chunk  # others have moved into the place of those left out
        self._faults = happened

    def next(self, cut: Cut) -> Cut | None:
        """Return the next cut to try, None if there is nothing left."""
        for field, size in self._sizes:
            if field not in self._found:
                self._last = field
                return replace(cut, tasks=size) if field == "tasks" else replace(cut, records=size)
        self._last = "faults"
        while self._at >= len(self._faults):
            if self._chunk == 1:
                return None
            self._chunk, self._at = self._chunk // 2, 0
        kept = self._faults[: self._at] + self._faults[self._at + self._chunk :]
        self._at += self._chunk
        return replace(cut, faults=kept)


def repeat_command(found: Result, mutant: str | None = None, cut: Cut = WHOLE) -> str:
    """Return the command that repeats a run."""
    which = f" --mutant {mutant}" if mutant else f" --world {found.world}" if found.world != "aligned" else ""
    return f"python -m tests.verification.simulation --seed {found.seed}{which}{cut.options()}"
