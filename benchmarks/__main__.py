"""All benchmarks, side by side in one run, interleaved: ``python -m benchmarks [--rounds N] [--words N] [--keys N]``.

Machines are noisy: what counts are ratios within one run. Each measurement has a process and a directory of its own.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

console = Console()
Results = dict[str, list[dict[str, float]]]


def measure(name: str, *arguments: str) -> dict[str, float]:
    """Run one measurement in a process of its own and return its figures."""
    command = [sys.executable, "-m", "benchmarks.measure", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # our own module
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def plan(words: int, skewed_words: int, keys: int) -> dict[str, tuple[str, ...]]:
    """Return label → measurement, in the order of one round."""
    few = f"words={skewed_words}"
    return {
        "exactly once": ("throughput", f"words={words}", "guarantee=exactly-once"),
        "at least once": ("throughput", f"words={words}", "guarantee=at-least-once"),
        "bare loop": ("bare", f"words={words}"),
        "early records buffered": ("skewed", few),
        "buffered, 16 KiB in memory": ("skewed", few, "early_memory_bytes_max=16384"),
        "skipped, read again (bound 0)": ("skewed", few, "early_bytes_max=0"),
        "restore": ("restore", f"keys={keys}"),
    }


def median(results: Results, label: str, figure: str) -> float:
    """Return the median of a figure over the rounds."""
    return statistics.median(result[figure] for result in results[label])


def show_throughput(results: Results) -> None:
    """Print both guarantees beside the bare loop."""
    table = Table(title="Two stages in one worker on the embedded log, process() as in the README")
    for column in ("", "words/s (median)", "runs", "of at least once", "of the bare loop", "peak RSS MiB"):
        table.add_column(column, justify="left" if not column else "right")
    at_least, bare = (median(results, label, "words_per_s") for label in ("at least once", "bare loop"))
    for label in ("exactly once", "at least once", "bare loop"):
        rate = median(results, label, "words_per_s")
        runs = " ".join(f"{result['words_per_s'] / 1000:.0f}k" for result in results[label])
        rss = median(results, label, "rss_mib")
        table.add_row(label, f"{rate:,.0f}", runs, f"{rate / at_least:.2f}", f"{rate / bare:.2f}", f"{rss:.0f}")
    console.print(table)


def show_early(results: Results) -> None:
    """Print what the early buffer is worth when sources do not keep step."""
    table = Table(title="Two workers, one source slow: early records kept for their version, or read again")
    for column in ("", "words/s (median)", "early", "of these on disk", "seeks back", "frames skipped"):
        table.add_column(column, justify="left" if not column else "right")
    for label in ("early records buffered", "buffered, 16 KiB in memory", "skipped, read again (bound 0)"):
        early, disk = (median(results, label, figure) for figure in ("early_share", "early_on_disk_share"))
        row = [f"{median(results, label, 'words_per_s'):,.0f}", f"{early:.1%}", f"{disk:.1%}"]
        row += [f"{median(results, label, figure):,.0f}" for figure in ("seeks_back", "frames_skipped")]
        table.add_row(label, *row)
    console.print(table)


def show_restore(results: Results, keys: int) -> None:
    """Print how long a task needs to come back."""
    table = Table(title=f"Coming back with {keys:,} keys of 80 bytes: from the start of the worker's loop to running")
    for column in ("", "seconds (median)", "changelog records", "records/s"):
        table.add_column(column, justify="left" if not column else "right")
    for label, name in (("same host: redo", "redo"), ("state deleted: bootstrap", "bootstrap")):
        figures = [median(results, "restore", f"{name}_{figure}") for figure in ("s", "records", "records_per_s")]
        table.add_row(label, f"{figures[0]:.2f}", f"{figures[1]:,.0f}", f"{figures[2]:,.0f}")
    console.print(table)


def main() -> None:
    """Run all rounds, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=400_000)
    parser.add_argument("--skewed-words", type=int, default=80_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args()
    measurements = plan(options.words, options.skewed_words, options.keys)
    results: Results = {label: [] for label in measurements}
    steps = [(label, measurement) for _ in range(options.rounds) for label, measurement in measurements.items()]
    for label, measurement in track(steps, "measuring", console=console):
        results[label].append(measure(*measurement))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    packages = ", ".join(f"{name} {version(name)}" for name in ("rocksdict", "msgspec"))
    console.print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {packages}, "
        f"commit {commit.stdout.strip() or 'unknown'}, python -m benchmarks {' '.join(sys.argv[1:])}"
    )
    show_throughput(results)
    show_early(results)
    show_restore(results, options.keys)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
