"""``python -m framework.simulation --seeds 0..1000``: run seeds, or hunt mutants, and say what happened."""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from framework.simulation.batch import Batch, hunt, run_batch
from framework.simulation.counters import BATCH, SOMETIMES
from framework.simulation.mutants import MUTANTS
from framework.simulation.run import Result

FAILURES_SHOWN = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all seeds are clean (or all mutants died), 1 if not, 2 for arguments that make no sense."""
    asked = _parse(arguments)
    console = Console()
    if asked.all_mutants:
        return _hunt_all(console)
    seeds = asked.seeds
    started = time.monotonic()
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        job = bar.add_task("seeds", total=len(seeds))

        def progress(batch: Batch) -> None:
            bar.update(
                job, completed=batch.seeds, description=f"seeds, {batch.faults} faults, {len(batch.failures)} failures"
            )

        batch = run_batch(seeds, asked.mutant, asked.processes, progress)
    seconds = time.monotonic() - started
    _show(console, batch, seconds)
    for result in batch.failures[:FAILURES_SHOWN]:
        _show_failure(console, result, asked.mutant)
    never = [name for name in SOMETIMES if not batch.counters[name]]
    if asked.mutant is None and never and batch.seeds >= BATCH:
        console.print(f"[red]never happened in {batch.seeds} seeds: {', '.join(never)}")
        return 1
    return 1 if batch.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m framework.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=_range, default=range(1000), metavar="A..B", help="from A up to and without B, or one seed A"
    )
    parser.add_argument(
        "--mutant",
        choices=sorted(MUTANTS),
        metavar="NAME",
        help="bring back a known mistake: " + ", ".join(sorted(MUTANTS)),
    )
    parser.add_argument("--all-mutants", action="store_true", help="hunt every mutant")
    parser.add_argument("--processes", type=int, default=1, help="run seeds in so many processes")
    return parser.parse_args(arguments)


def _range(text: str) -> range:
    first, dots, last = text.partition("..")
    try:
        return range(int(first), int(last) if dots else int(first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: need A..B or A") from None


def _show(console: Console, batch: Batch, seconds: float) -> None:
    table = Table(
        title=f"{batch.seeds} seeds, {batch.faults} faults, {batch.steps} steps, {len(batch.failures)} failures"
    )
    table.add_column("what happened")
    table.add_column("times", justify="right")
    table.add_column("in seeds", justify="right")
    for name in sorted({*SOMETIMES, *batch.counters}):
        style = "red" if name in SOMETIMES and not batch.counters[name] else ""
        table.add_row(name, str(batch.counters[name]), str(batch.seeds_with[name]), style=style)
    console.print(table)
    console.print(
        f"{batch.seeds / max(seconds, 1e-9):.1f} seeds a second, {batch.faults / max(batch.seeds, 1):.1f} faults a seed"
    )


def _show_failure(console: Console, result: Result, mutant: str | None) -> None:
    out = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    out(f"\nseed {result.seed} ({result.plan.shape}): {result.violation}")
    out("\n".join(f"  {line}" for line in result.faults))
    out("\n".join(f"    {line}" for line in result.trace[-40:]))
    out(f"repeat it: {command(result.seed, mutant)}")


def command(seed: int, mutant: str | None = None) -> str:
    """Return the command that repeats a run."""
    return f"python -m framework.simulation --seeds {seed}" + (f" --mutant {mutant}" if mutant else "")


def _hunt_all(console: Console) -> int:
    table = Table(title=f"{len(MUTANTS)} mutants")
    for column in ("mutant", "died on", "seed", "seeds tried", "mistake"):
        table.add_column(column)
    failed = 0
    with console.status("hunting") as status:
        for name in MUTANTS:
            status.update(f"hunting {name}")
            kill = hunt(name)
            failed += not kill.expected
            table.add_row(
                name,
                kill.invariant or "survived",
                str(kill.seed),
                str(kill.tried),
                MUTANTS[name].mistake,
                style="" if kill.expected else "red",
            )
    console.print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
