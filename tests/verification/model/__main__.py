"""``python -m tests.verification.model``: explore small jobs, all of each, or show what the literal rules would do."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from tests.verification.model.holes import HOLES, opened
from tests.verification.model.search import STATES_MAX, Report, explore
from tests.verification.model.story import told
from tests.verification.model.system import System
from tests.verification.model.world import FULL, SLICE, World

COLUMNS = ("world", "bounds", "states", "transitions", "depth", "ends", "s", "result")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all that was asked for is clean and complete (or each hole was found), 1 if not, 2 for no sense."""
    asked = _parse(arguments)
    console = Console()
    if asked.hole or asked.all_holes:
        return max(_show_hole(console, name) for name in (HOLES if asked.all_holes else [asked.hole]))
    worlds = FULL if asked.full else SLICE
    table = Table(title="every interleaving, within the bounds")
    for column in COLUMNS:
        table.add_column(column, no_wrap=column != "bounds")
    failures = []
    for world in [worlds[asked.world]] if asked.world else worlds.values():
        report, story = _explore(console, world, asked.states_max)
        table.add_row(world.name, str(world.bounds), *_figures(report), style="" if report.complete else "red")
        if report.violation is not None:
            failures.append((world, report, story))
    console.print(table)
    for world, report, story in failures:
        _show(console, f"{world.name}: {report.violation}", story)
    return 0 if not failures and report.complete else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.verification.model", description=__doc__)
    parser.add_argument("--full", action="store_true", help="wide bounds: minutes instead of seconds")
    parser.add_argument("--world", choices=sorted({*SLICE, *FULL}), metavar="NAME", help="one world only")
    parser.add_argument("--states-max", type=int, default=STATES_MAX, help="give up on a world beyond so many")
    parser.add_argument(
        "--hole", choices=sorted(HOLES), metavar="NAME", help="follow a literal rule: " + ", ".join(sorted(HOLES))
    )
    parser.add_argument("--all-holes", action="store_true", help="all of them, one after the other")
    asked = parser.parse_args(arguments)
    if asked.world and asked.world not in (FULL if asked.full else SLICE):
        parser.error(f"{asked.world!r} has {'no' if asked.full else 'only'} wide bounds")
    return asked


def _explore(console: Console, world: World, states_max: int) -> tuple[Report, list[str]]:
    system = System(world)
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as bar:
        job = bar.add_task(world.name, total=None)

        def progress(states: int, depth: int) -> None:
            bar.update(job, description=f"{world.name}: {states:,} states, depth {depth}")

        report = explore(system, states_max=states_max, progress=progress)
    return report, list(told(system, report.path))


def _figures(report: Report) -> tuple[str, ...]:
    counts = (report.states, report.transitions, report.depth, report.at_rest)
    verdict = "complete" if report.complete else "bound hit"
    if report.violation is not None:
        verdict = report.violation.name
    return (*(f"{count:,}" for count in counts), f"{report.seconds:.1f}", verdict)


def _show_hole(console: Console, name: str) -> int:
    hole = HOLES[name]
    with opened(name):
        system = System(hole.world, reduced=False)
        report = explore(system, only=hole.invariant)
    story = list(told(system, report.path))
    _show(console, f"{name}: {hole.says}. Missing: {hole.missing}\n{report.violation or 'not found'}", story)
    return 0 if report.violation is not None else 1


def _show(console: Console, title: str, story: Sequence[str]) -> None:
    console.print(f"\n{title}", markup=False, highlight=False, soft_wrap=True)
    for line in story:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
