"""Runs measurements, each in a process of its own, in turn; says where they were taken."""

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table as Printed

from benchmarks.results import Kept, Run, Table, today
from benchmarks.results import write as write_results

console = Console()
Results = dict[str, list[dict[str, float]]]


def measure(module: str, *arguments: str) -> dict[str, float]:
    """Run one measurement and return its figures."""
    result: dict[str, float] = measure_any(module, *arguments)
    return result


def measure_any(module: str, *arguments: str) -> dict[str, Any]:
    """Run one measurement and return what it prints. Raises SystemExit with its last words."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # our own module
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_all(module: str, plan: Mapping[str, tuple[str, ...]], rounds: int) -> Results:
    """Run every measurement of a plan (label → its arguments) once a round, in order."""
    results: Results = {label: [] for label in plan}
    steps = [(label, arguments) for _ in range(rounds) for label, arguments in plan.items()]
    for label, arguments in track(steps, "measuring", console=console):
        results[label].append(measure(module, *arguments))
    return results


def median(results: Results, label: str, figure: str) -> float:
    """Return the median of a figure over the rounds."""
    return statistics.median(result[figure] for result in results[label])


def tree(top: int) -> set[int]:
    """Return the numbers of a process and all below it (Linux)."""
    return set(_tree_ticks(top))


def tree_cpu_s() -> float:
    """Return the CPU seconds of this process and all below it, those that have ended among them (Linux)."""
    return sum(_tree_ticks(os.getpid()).values()) / os.sysconf("SC_CLK_TCK")


def _tree_ticks(top: int) -> dict[int, int]:
    """Return process → clock ticks, its ended children's among them."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            number = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(number)
            ticks[number] = sum(map(int, fields[11:15]))
    found, left = dict[int, int](), [top]
    while left:
        number = left.pop()
        found[number] = ticks.get(number, 0)
        left += children.get(number, [])
    return found


def say_where(*packages: str) -> None:
    """Print what belongs beside every figure: machine, load, versions, commit, command."""
    console.print(where(*packages))


def show(table: Printed) -> Table:
    """Print a table; return it for the docs."""
    console.print(table)
    cells = [list(map(str, column.cells)) for column in table.columns]
    rows: list[list[int | float | str | None]] = [list(row) for row in zip(*cells, strict=True)]
    return Table(str(table.title), [str(column.header) for column in table.columns], rows)


def keep(name: str, run: Run, tables: Sequence[Table]) -> None:
    """Write a run into the docs if it was asked for: WRITE=1."""
    if os.environ.get("WRITE"):
        run.tables = list(tables)
        write_results(name, Kept([run]))


def where(*packages: str) -> str:
    """Return the text beside every figure: machine, load, versions, commit, command."""
    run = taken(*packages)
    versions = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    return f"{run.machine}, {versions}, commit {run.commit}, {run.command}"


def taken(*packages: str) -> Run:
    """Return a run that ends now, without its tables."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    spec = sys.modules["__main__"].__spec__
    module = "benchmarks" if spec is None else spec.name.removesuffix(".__main__")
    return Run(
        command=f"python -m {module} {' '.join(sys.argv[1:])}".rstrip(),
        commit=commit.stdout.strip() or "unknown",
        date=today(),
        machine=f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}",
        versions={"Python": platform.python_version(), **{name: version(name) for name in packages}},
        tables=[],
    )
