"""``make repeat``: whole runs of the tests, counted over days in docs/results/repeat.json; what speaks against them.

``KIND`` is what is around the run, ``RUNS`` how many to add. A run is a ``make test``, so that ``make times`` has its
figures, too. Each is kept when it has ended, by the rows that tests/suite/measured.py wrote. A person writes into the
file why a test failed that no defect explains: the empty text behind its name is the place. ``RUNS=0`` only makes the
tables again.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, get_args

import msgspec

from benchmarks import results
from benchmarks.results import Cell, Kept, Run, Table
from benchmarks.running import taken
from tests.suite import times
from tests.suite.measured import FOLDER, Row

Kind = Literal["quiet", "one-core", "loaded", "nohup", "waits"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ASKED: dict[Kind, int] = {"quiet": 10, "one-core": 4, "loaded": 4, "nohup": 2, "waits": 20}  # runs without a failure
SAYS: dict[Kind, str] = {
    "quiet": "nothing else runs",
    "one-core": "all of it on one core, by taskset",
    "loaded": "beside 20 busy loops",
    "nohup": "under nohup, with an empty environment",
    "waits": "only the modules of tests that start processes or wait, beside 20 busy loops",
}
NAME = "repeat"  # of the results
ROOT = times.ROOT
LOOPS = 20
QUIET_LOAD = 0.5  # of each core
QUIET_S_MAX = 600.0  # after a run the load of the last minute falls to a hundredth in less than five
_BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(1_000_000))\n"


class Ran(msgspec.Struct, frozen=True):
    """One run."""

    kind: Kind
    commit: str
    date: str
    passed: int
    failed: int
    skipped: int
    seconds: int
    load: float  # of the minute before it
    failures: dict[str, str]  # test → why it failed, if no defect explains it; empty until a person wrote it

    @property
    def count(self) -> int:
        """Return the number of tests."""
        return self.passed + self.failed + self.skipped


def complaints(runs: Sequence[Ran]) -> list[str]:
    """Return the faults of the runs: skips, counts that differ at one commit, failures without a cause."""
    found = []
    firsts: dict[tuple[str, bool], Ran] = {}
    for run in runs:
        where = f"{run.date}, {run.kind}, commit {run.commit}"
        first = firsts.setdefault((run.commit, run.kind == "waits"), run)
        if run.count != first.count:
            found.append(f"{where}: {run.count} tests, and {first.count} in the run of kind {first.kind}")
        if run.skipped:
            found.append(f"{where}: {run.skipped} tests were skipped")
        found += [
            f"{where}: {test} failed, and its cause is not written" for test, why in run.failures.items() if not why
        ]
    return found


@contextmanager
def busy_loops(number: int = LOOPS) -> Iterator[None]:
    """Let loops run beside the block. They end with it, and also if this process is killed."""
    loops = [subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())]) for _ in range(number)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
        for each in loops:
            each.wait()


def waiting_modules(rows: Sequence[Row]) -> list[str]:
    """Return the modules of the tests that start a process, ask for a server or sleep. Raises SystemExit."""
    modules = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")}
    missing = sorted(modules - {row.test.partition("::")[0] for row in rows})
    if missing:
        raise SystemExit(f"{FOLDER} does not say which tests wait in {missing[0]}: run `make test` here once")
    computing = {"RocksDB", "nothing: it computes"}
    return sorted(modules & {row.test.partition("::")[0] for row in rows if times.wait_of(row) not in computing})


def ran(kind: Kind, command: Sequence[str]) -> Ran:
    """Run the tests by the command, in the surroundings of that kind. Raises SystemExit if it ran no test."""
    load, began_s, started = os.getloadavg()[0], time.time(), time.monotonic()
    environment: dict[str, str] = {} if kind == "nohup" else os.environ | {"CI": "true"}
    before = {
        "one-core": ["taskset", "-c", str(min(os.sched_getaffinity(0)))],
        "nohup": ["nohup"],
    }.get(kind, [])
    with busy_loops(LOOPS if kind in {"loaded", "waits"} else 0):
        done = subprocess.run(
            [*before, *command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False
        ).returncode
    outcomes = {row.test: row.outcome for row in times.rows_since(began_s, ROOT / FOLDER)}
    if not outcomes:
        raise SystemExit(f"{command[0]} ended with {done} and ran no test: the run is not counted")
    failed = sorted(test for test, outcome in outcomes.items() if outcome == "failed")
    if done and not failed:
        failed = [f"{command[0]} itself, exit code {done}"]
    counts = Counter(outcomes.values())
    where = taken()
    return Ran(
        kind=kind,
        commit=where.commit,
        date=where.date,
        passed=counts["passed"],
        failed=len(failed),
        skipped=counts["skipped"],
        seconds=round(time.monotonic() - started),
        load=round(load, 1),
        failures=dict.fromkeys(failed, ""),
    )


def kept(runs: Sequence[Ran], where: Run) -> Kept:
    """Return the results, with their tables. ``where`` the last run was."""
    clean: dict[Kind, list[bool]] = {
        kind: [not (run.failures or run.skipped) for run in runs if run.kind == kind] for kind in KINDS
    }
    where.command = "make repeat KIND=… RUNS=…"
    progress: list[list[Cell]] = [
        [f"`{kind}`: {SAYS[kind]}", ASKED[kind], sum(clean[kind]), len(clean[kind])] for kind in KINDS
    ]
    where.tables = [
        Table("Runs of all tests: asked for, and reached", ["kind", "asked", "all passed", "runs"], progress)
    ]
    if runs:
        columns = ["date", "commit", "kind", "passed", "failed", "skipped", "seconds", "load before"]
        lines: list[list[Cell]] = [
            [run.date, run.commit, run.kind, run.passed, run.failed, run.skipped, run.seconds, run.load] for run in runs
        ]
        where.tables.append(Table("Each run", columns, lines))
    failures: list[list[Cell]] = [
        [f"`{test}`", f"{run.date}, {run.kind}", why or "not known yet"]
        for run in runs
        for test, why in run.failures.items()
    ]
    if failures:
        where.tables.append(Table("What failed", ["test", "in the run", "cause"], failures))
    return Kept([where], [msgspec.to_builtins(run) for run in runs])


def _changed() -> str:
    """Return the files that are not as they were committed, but for the docs, where the runs are kept."""
    command = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _wait_for_quiet() -> None:
    """Wait until nothing else runs. Raises SystemExit if it goes on."""
    until, most = time.monotonic() + QUIET_S_MAX, QUIET_LOAD * (os.cpu_count() or 1)
    while (load := os.getloadavg()[0]) > most:
        if time.monotonic() > until:
            raise SystemExit(f"the load is {load:.1f}, and quiet is {most:.1f}: end what runs, or KIND=loaded")
        time.sleep(1)


def _runs() -> list[Ran]:
    return msgspec.convert(results.read(NAME).cells, list[Ran])


def _keep(runs: Sequence[Ran]) -> None:
    where = taken()
    where.machine = f"{os.cpu_count()} cores, {platform.machine()}"
    results.write(NAME, kept(runs, where))


def main(arguments: Sequence[str] | None = None) -> int:
    """Add runs; return 1 if something speaks against those that are kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite.repeat", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="quiet")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("command", nargs="+", help="behind --: what runs the tests")
    asked = parser.parse_args(arguments)
    if changed := _changed():
        raise SystemExit(f"a run is of a commit, and these are changed: commit them first\n{changed}")
    modules = waiting_modules(times.read()[0]) if asked.kind == "waits" else []
    for _ in range(asked.runs):
        if asked.kind == "quiet":
            _wait_for_quiet()
        run = ran(asked.kind, [*asked.command, *modules])
        told = f"{run.passed} passed, {run.failed} failed, {run.skipped} skipped in {run.seconds} s"
        print(f"{run.kind}: {told}", flush=True)
        _keep([*_runs(), run])
    if not asked.runs:
        _keep(_runs())
    found = complaints(_runs())
    print("\n".join(found) or "nothing speaks against the runs that are kept")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
