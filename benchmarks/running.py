"""Runs measurements, each in a process of its own, in turn; says where they were taken."""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version

from rich.console import Console
from rich.progress import track

console = Console()
Results = dict[str, list[dict[str, float]]]


def measure(module: str, *arguments: str) -> dict[str, float]:
    """Run one measurement and return its figures."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # our own module
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
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


def say_where(*packages: str) -> None:
    """Print what belongs beside every figure: machine, load, versions, commit, command."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    console.print(
        f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}, {versions}, commit {commit.stdout.strip() or 'unknown'}, "
        f"python -m benchmarks {' '.join(sys.argv[1:])}"
    )
