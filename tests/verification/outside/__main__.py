"""Makes the mistakes, each in a copy of the repository, and runs the test that must notice it.

``--write`` keeps each result at once, so that a run can be ended and goes on later with what is not of this commit yet.
"""

import argparse
import fnmatch
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from queue import SimpleQueue

from tests.verification.outside import results
from tests.verification.outside.mutants import ROOT, Mutant, complaints, mutants
from tests.verification.outside.results import Outcome, Result
from tests.verification.outside.workbench import FAILED, PASSED, Ran, Workbench

SLOW_S = 30.0  # a test that waits for what does not come has to fail within that


class Bench:
    """Judges mistakes. A test kills one if it fails with it and passes without."""

    def __init__(self, jobs: int) -> None:
        """Have as many copies as tests run at a time."""
        self._free: SimpleQueue[Workbench] = SimpleQueue()
        self._passes: dict[str, Ran] = {}  # test → how it ended on the code as it is
        self._lock = threading.Lock()
        for _ in range(jobs):
            self._free.put(Workbench())

    def close(self) -> None:
        """Remove the copies."""
        while not self._free.empty():
            self._free.get().__exit__(None, None, None)

    def judge(self, mutant: Mutant) -> tuple[Mutant, Outcome, Ran]:
        """Make a mistake and run its test; then the same test without the mistake, once in a run of this command."""
        bench = self._free.get()
        try:
            ran = bench.with_mistake(mutant)
            if ran.code == PASSED:
                return mutant, "survived", ran
            if ran.code != FAILED:
                return mutant, "unknown", ran
            if mutant.test not in self._passes:
                without = bench.run(mutant.test)
                with self._lock:
                    self._passes[mutant.test] = without
            without = self._passes[mutant.test]
            return (mutant, "killed", ran) if without.code == PASSED else (mutant, "unknown", without)
        finally:
            self._free.put(bench)


def chosen(only: list[str], commit: str, *, again: bool) -> Iterator[Mutant]:
    """Yield the mistakes to make: those named, or those of which this commit has no result, the oldest first."""
    kept = results.read()
    for mutant in sorted(mutants().values(), key=lambda each: kept[each.name].date if each.name in kept else ""):
        last = kept.get(mutant.name)
        done = last is not None and last.is_of(mutant) and last.commit == commit and last.outcome != "unknown"
        named = any(fnmatch.fnmatch(mutant.name, each) or mutant.room == each for each in only)
        if named or (not only and (again or not done)):
            yield mutant


def told(mutant: Mutant, outcome: Outcome, ran: Ran) -> str:
    """Return the line for a person on one mistake."""
    line = f"{outcome:9} {ran.seconds:6.1f} s  {mutant.name}  by {mutant.test}"
    if outcome == "killed" and ran.seconds > SLOW_S:
        line += f"\n  its test takes more than {SLOW_S:.0f} s to fail: bound what it waits for"
    if outcome == "survived":
        line += f"\n  guarantee: {mutant.says} ({mutant.page})\n  {mutant.lives or mutant.scenario}"
    if outcome == "unknown":
        line += f"\n  the test ends with {ran.code} on the code as it is, or could not run:\n{ran.said}"
    return line


def main() -> int:
    """Run the command; return 1 if a mistake survives that is not explained, or could not be made."""
    parser = argparse.ArgumentParser(prog="python -m tests.verification.outside", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a mistake, a pattern, or a room")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="tests that run at a time")
    parser.add_argument("--write", action="store_true", help="keep the results in results.txt")
    parser.add_argument("--all", action="store_true", help="also those of which this commit has a result")
    options = parser.parse_args()
    wrong = [each for mutant in mutants().values() for each in complaints(mutant)]
    if wrong:
        print("\n".join(wrong))
        return 1
    head = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commit, date = head.stdout.strip(), datetime.now(UTC).date().isoformat()
    counts: dict[str, int] = {}
    bad = 0
    bench = Bench(options.jobs)
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            todo = list(chosen(options.only, commit, again=options.all))
            for mutant, outcome, ran in pool.map(bench.judge, todo):
                print(told(mutant, outcome, ran), flush=True)
                counts[outcome] = counts.get(outcome, 0) + 1
                bad += outcome == "unknown" or (outcome == "killed") == bool(mutant.lives)
                if options.write and outcome != "unknown":
                    result = Result(mutant.name, outcome, ran.seconds, commit, date, mutant.digest)
                    results.write(results.read() | {mutant.name: result})
    finally:
        bench.close()
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "nothing to do")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
