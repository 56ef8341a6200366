"""Runs measurements, each in a process of its own, in turn; says where they were taken."""

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

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


def tree_cpu_s() -> float:
    """Return the CPU seconds of this process and all below it, those that have ended among them (Linux)."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            number = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(number)
            ticks[number] = sum(map(int, fields[11:15]))
    total, left = 0, [os.getpid()]
    while left:
        number = left.pop()
        total += ticks.get(number, 0)
        left += children.get(number, [])
    return total / os.sysconf("SC_CLK_TCK")


def say_where(*packages: str) -> None:
    """Print what belongs beside every figure: machine, load, versions, commit, command."""
    console.print(where(*packages))


def where(*packages: str) -> str:
    """Return what belongs beside every figure: machine, load, versions, commit, command."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    spec = sys.modules["__main__"].__spec__
    module = "benchmarks" if spec is None else spec.name.removesuffix(".__main__")
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}, {versions}, commit {commit.stdout.strip() or 'unknown'}, "
        f"python -m {module} {' '.join(sys.argv[1:])}".rstrip()
    )
