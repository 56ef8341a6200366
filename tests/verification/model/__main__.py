"""``python -m tests.verification.model``: explore small jobs, all of each, or show what the literal rules would do."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from grete.cli.output.tables import print_table
from tests.verification.model.counterexamples import COUNTEREXAMPLES, opened
from tests.verification.model.search import STATES_MAX, Report, explore
from tests.verification.model.system import System
from tests.verification.model.trace_text import told
from tests.verification.model.world import FULL, SLICE, World

COLUMNS = ("world", "bounds", "states", "transitions", "depth", "ends", "s", "result")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all that was asked for is clean and complete (or each counterexample was found).

    1: it is not. 2: the request makes no sense.
    """
    asked = _parse(arguments)
    console = Console()
    if asked.counterexample or asked.all_counterexamples:
        return max(
            _show_counterexample(console, name)
            for name in (COUNTEREXAMPLES if asked.all_counterexamples else [asked.counterexample])
        )
    worlds = FULL if asked.full else SLICE
    table = Table(*COLUMNS, title="every interleaving, within the bounds")
    failures = []
    for world in [worlds[asked.world]] if asked.world else worlds.values():
        report, trace_text = _explore(console, world, asked.states_max)
        table.add_row(world.name, str(world.bounds), *_figures(report), style="" if report.complete else "red")
        if report.violation is not None:
            failures.append((world, report, trace_text))
    print_table(console, table)
    for world, report, trace_text in failures:
        _show(console, f"{world.name}: {report.violation}", trace_text)
    return 0 if not failures and report.complete else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.verification.model", description=__doc__)
    parser.add_argument("--full", action="store_true", help="wide bounds: minutes instead of seconds")
    parser.add_argument("--world", choices=sorted({*SLICE, *FULL}), metavar="NAME", help="one world only")
    parser.add_argument("--states-max", type=int, default=STATES_MAX, help="give up on a world beyond that many")
    parser.add_argument(
        "--counterexample",
        choices=sorted(COUNTEREXAMPLES),
        metavar="NAME",
        help="follow a literal rule: " + ", ".join(sorted(COUNTEREXAMPLES)),
    )
    parser.add_argument("--all-counterexamples", action="store_true", help="all of them, one after the other")
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
    outcome = "complete" if report.complete else "bound hit"
    if report.violation is not None:
        outcome = report.violation.name
    return (*(f"{count:,}" for count in counts), f"{report.seconds:.1f}", outcome)


def _show_counterexample(console: Console, name: str) -> int:
    counterexample = COUNTEREXAMPLES[name]
    with opened(name):
        system = System(counterexample.world, reduced=False)
        report = explore(system, only=counterexample.invariant)
    trace_text = list(told(system, report.path))
    _show(
        console,
        f"{name}: {counterexample.says}. Missing: {counterexample.missing}\n{report.violation or 'not found'}",
        trace_text,
    )
    return 0 if report.violation is not None else 1


def _show(console: Console, title: str, trace_text: Sequence[str]) -> None:
    console.print(f"\n{title}", markup=False, highlight=False, soft_wrap=True)
    for line in trace_text:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
