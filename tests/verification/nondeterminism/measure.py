"""Measures who catches each case of the corpus, and who gives a false alarm at a near miss.

``python -m tests.verification.nondeterminism.measure`` prints it; ``--write``: also into docs/results and the page.
"""

import ast
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from benchmarks import results
from grete.execution.deterministic.lint.project import Project
from grete.replay.determinism.elsewhere import TIME_ZONE
from tests.verification.nondeterminism.lives import package

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
# Whether these differ in one run is chance: which thread is first, what else the machine does, where objects are.
BY_CHANCE = {
    "coroutines",
    "expiring_cache",
    "garbage",
    "memory",
    "rate_limit",
    "references",
    "retries",
    "set_of_objects",
    "slow_lines",
    "sorted_by_address",
    "threads",
    "time_limit",
}
HASHES, OTHER_HASHES = "12345", "777"  # the seeds of the processes that replay: any but 0, that of workers


class Caught(NamedTuple):
    """The checks that have caught a case. ``warned``: at the start, by reading the code."""

    warned: bool
    replayed: bool  # the first replay of grete check-determinism: of all
    restarted: bool  # its second one: in another process, from a later checkpoint
    halted: bool  # the successor of a killed worker

    @property
    def checked(self) -> bool:
        """Whether grete check-determinism reports it."""
        return self.replayed or self.restarted


def corpus(kind: str) -> list[str]:
    """Return the names of "cases" or "near_misses"."""
    return sorted(f"{kind}/{path.stem}" for path in (HERE / kind).glob("*.py"))


def described(case: str) -> tuple[str, str]:
    """Return the cause that a case depends on, and why that differs when it runs again, or why it does not."""
    text = ast.get_docstring(ast.parse((HERE / f"{case}.py").read_text())) or ""
    what, _, why = text.partition(". ")
    return what, why


def warned(case: str) -> list[str]:
    """Return the warnings at the start of a worker."""
    job = import_module(package(case)).job
    return [f"{finding.line}: {finding.what}" for finding in Project(job.stages[0].task).findings()]


def live(
    role: str, directory: Path, cases: list[str], hashes: str = "0", variables: dict[str, str] | None = None
) -> dict[str, str]:
    """Run a role of lives.py in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hashes, "CORPUS_LIFE": role}
    environment |= variables or {}
    command = [sys.executable, "-m", "tests.verification.nondeterminism.lives", role, str(directory), *cases]
    ran = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str] = json.loads(ran.stdout)
    return found


def measure(cases: list[str], directory: Path) -> dict[str, Caught]:
    """Return the checks that catch each of these cases. Raises AssertionError if a life was not as it was meant."""
    first = live("first", directory, cases)
    assert set(first.values()) == {"killed"}, first
    replayed = live("replayed", directory, cases, HASHES)
    assert set(replayed.values()) <= {"same", "differs"}, replayed
    restarted = live("restarted", directory, cases, OTHER_HASHES, {"TZ": TIME_ZONE})
    assert set(restarted.values()) <= {"same", "differs"}, restarted
    second = live("second", directory, cases)
    assert set(second.values()) <= {"same", "halts"}, second
    return {
        case: Caught(
            bool(warned(case)), replayed[case] == "differs", restarted[case] == "differs", second[case] == "halts"
        )
        for case in cases
    }


def names(cases: Iterable[str]) -> str:
    """Return the names of cases, for a cell of a table."""
    return ", ".join(case.partition("/")[2] for case in sorted(cases)) or "none"


def tables(found: dict[str, Caught]) -> list[results.Table]:
    """Return the number of cases that each check catches, and all cases with the checks that catch them."""
    cases = {case: caught for case, caught in found.items() if case.startswith("cases/")}
    near = {case: caught for case, caught in found.items() if case not in cases}
    titles: dict[str, Callable[[Caught], bool]] = {
        "a warning at the start": lambda each: each.warned,
        "`grete check-determinism`": lambda each: each.checked,
        "– its replay from the begin": lambda each: each.replayed,
        "– its replay from a later checkpoint, in another process": lambda each: each.restarted,
        "a halt after `kill -9`": lambda each: each.halted,
    }
    counts: list[list[results.Cell]] = [
        [title, *(sum(map(caught_by, some.values())) for some in (cases, near))] for title, caught_by in titles.items()
    ]
    counts.append(["any of them", *(sum(map(any, some.values())) for some in (cases, near))])
    groups: dict[Caught, list[str]] = defaultdict(list)
    for case, caught in cases.items():
        groups[caught].append(case)
    marks = {True: "yes", False: "no"}
    rows: list[list[results.Cell]] = [
        [*(marks[each] for each in caught), len(members), names(members)]
        for caught, members in sorted(groups.items(), reverse=True)
    ]
    alarms: list[list[results.Cell]] = [
        [title, names(case for case, caught in near.items() if caught_by(caught))]
        for title, caught_by in titles.items()
    ]
    return [
        results.Table(
            f"{len(cases)} tasks that are not deterministic, and {len(near)} that only look so",
            ["caught by", f"of {len(cases)}", f"false alarms of {len(near)}"],
            counts,
        ),
        results.Table("Who catches which", ["warned", "replay", "later replay", "halts", "tasks", "which"], rows),
        results.Table("False alarms", ["by", "which"], alarms),
    ]


def main() -> None:
    """Measure the whole corpus."""
    began, cases = time.monotonic(), corpus("cases") + corpus("near_misses")
    with tempfile.TemporaryDirectory() as directory:
        found = measure(cases, Path(directory))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = f"{time.monotonic() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU"
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    kept = results.Kept(
        runs=[
            results.Run(
                command="python -m tests.verification.nondeterminism.measure --write",
                commit=commit.stdout.strip(),
                date=results.today(),
                machine=f"{os.cpu_count()} cores",
                versions={"Python": ".".join(map(str, sys.version_info[:3]))},
                tables=tables(found),
                notes=[f"It took {seconds}."],
            )
        ],
        cells=[{"case": case, **caught._asdict()} for case, caught in found.items()],
    )
    if "--write" in sys.argv[1:]:
        results.write("nondeterminism", kept)
    print(results.markdown(kept))


if __name__ == "__main__":
    main()
