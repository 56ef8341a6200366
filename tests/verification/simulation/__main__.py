"""``python -m tests.verification.simulation``: run seeds, hunt mutants, make a failure small (docs/SIMULATION.md)."""

import os
import re
import resource
import secrets
import time
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF
from statistics import median
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tests.verification.simulation.batch import HUNTS, Batch, Kill, hunt_all, hunt_some, mend_known, run_batch
from tests.verification.simulation.boundary import CALLS, LOGICAL_CALLS, SIDES
from tests.verification.simulation.counters import BATCH, SOMETIMES
from tests.verification.simulation.kept import keep_batch, keep_hunts
from tests.verification.simulation.mutants import MUTANTS
from tests.verification.simulation.plan import WORLDS, Cut, World
from tests.verification.simulation.run import Result, run_seed
from tests.verification.simulation.shrink import repeat_command, shrink

FAILURES_SHOWN = 3
LINES = 40  # of a trace
CRASH = re.compile(rf"crash ({'|'.join(SIDES)}) ")


class Asked(NamedTuple):
    """The parameters of a batch."""

    seeds: Iterable[int]
    total: int | None  # None: until the time is over
    minutes: float | None
    mutant: str | None
    processes: int


def replay(seed: int, mutant: str | None, cut: Cut, world: World = "aligned", steps: Path | None = None) -> int:
    """Run one seed, or what is left of it, and show its faults, its trace and the digest of all that happened.

    ``steps``: a file for a line for each event and action, in the form of tests/core/scenarios.
    """
    console = Console()
    with nullcontext() if steps is None else steps.open("w") as file:
        tell = None if file is None else partial(print, file=file)
        result = run_seed(seed, check_mutant(mutant), cut, world=world, traced=True, tell=tell)
    _show_run(console, result)
    _plain(console)(f"digest {result.digest}, {result.steps} steps, {result.violation or 'no violation'}")
    return 1 if result.violation else 0


def batch(asked: Asked) -> int:
    """Run many seeds; 1 if one fails, or if something rare never happened in a batch that is large enough.

    WRITE=1: they are counted in docs/results.
    """
    console, started = Console(), time.monotonic()
    check_mutant(asked.mutant)
    with _bar(console) as bar:
        job = bar.add_task("seeds", total=asked.total)

        def progress(so_far: Batch) -> bool:
            text = f"{so_far.faults} faults, {len(so_far.failures)} failures"
            bar.update(job, completed=so_far.seeds, description=text)
            return asked.minutes is None or time.monotonic() - started < 60 * asked.minutes

        done = run_batch(asked.seeds, asked.mutant, asked.processes, progress)
        seconds = time.monotonic() - started
        smaller = []
        for result in done.failures[:FAILURES_SHOWN]:
            job = bar.add_task(f"making seed {result.seed} smaller")
            smaller.append(shrink(result, asked.mutant, partial(bar.advance, job)))
    _show(console, done, seconds)
    if os.environ.get("WRITE") and asked.mutant is None:
        keep_batch(done, _cpu_seconds())
    for result in smaller:
        _show_failure(console, result, asked.mutant)
    never = [name for name in SOMETIMES if not done.counters[name]]
    if asked.mutant is None and never and done.seeds >= BATCH:
        console.print(f"[red]never happened in {done.seeds} seeds: {', '.join(never)}")
        return 1
    return 1 if done.failures else 0


def all_mutants(processes: int) -> int:
    """Hunt every mutant from several places; print a table; 1 if one survives. WRITE=1: into docs/results."""
    with _bar(Console(stderr=True)) as bar:
        job = bar.add_task("mutants", total=len(MUTANTS) * HUNTS)
        kills = hunt_all(processes, partial(bar.advance, job))
    for line in mutants_table(kills):
        typer.echo(line)
    if os.environ.get("WRITE"):
        keep_hunts(kills, _cpu_seconds())
    return 0 if all(kill.expected for each in kills.values() for kill in each) else 1


def some_mutants(names: Iterable[str], first: int, processes: int) -> int:
    """Hunt these mutants from a seed on; 1 if one survives, or dies of something else."""
    kills = hunt_some([*names], first, processes)
    for kill in kills:
        how = f"died on {kill.invariant}, seed {kill.seed}" if kill.seed is not None else "survived"
        typer.echo(f"{kill.name}: {how}, after {kill.tried} seeds{'' if kill.expected else ', which is not expected'}")
    return 0 if all(kill.expected for kill in kills) else 1


def _cpu_seconds() -> float:
    """Return the seconds of a core that this process took, with those that it started and that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def mutants_table(kills: dict[str, list[Kill]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = ["| mutant | mistake | died on | seeds, median | most |", "|---|---|---|---|---|"]
    for name, each in kills.items():
        tried = [kill.tried for kill in each]
        on = sorted({kill.invariant if kill.expected else "**survived**" for kill in each})
        lines.append(f"| {name} | {MUTANTS[name].mistake} | {', '.join(on)} | {median(tried):.0f} | {max(tried)} |")
    return lines


def asked_for(seeds: str | None, minutes: float | None, mutant: str | None, processes: int, fresh: int) -> Asked:
    """Return the batch that the options mean: a range, or fresh seeds for a time, or 1,000 of them."""
    if seeds is not None:
        first, dots, last = seeds.partition("..")
        if not (dots and first.isdigit() and last.isdigit() and int(first) < int(last)):
            raise typer.BadParameter(f"--seeds {seeds}: need A..B, from A up to and without B, as in 0..1000")
        return Asked(range(int(first), int(last)), int(last) - int(first), minutes, mutant, processes)
    if minutes is not None:
        return Asked(count(fresh), None, minutes, mutant, processes)
    return Asked(range(fresh, fresh + BATCH), BATCH, None, mutant, processes)


def world_of(name: str) -> World:
    """Return the world of that name."""
    for world in WORLDS:
        if world == name:
            return world
    raise typer.BadParameter(f"--world {name}: need one of {', '.join(WORLDS)}")


def cut_for(faults: str | None, records: int | None, tasks: int | None) -> Cut:
    """Return the cut that the options mean."""
    if faults is None:
        return Cut(None, records, tasks)
    if faults != "none" and not re.fullmatch(r"\d+(,\d+)*", faults):
        raise typer.BadParameter(f"--faults {faults}: need numbers, as in 3,7, or none")
    return Cut(() if faults == "none" else tuple(map(int, faults.split(","))), records, tasks)


def check_mutant(name: str | None) -> str | None:
    """Return the name of a mutant that exists, or None."""
    if name is not None and name not in MUTANTS:
        raise typer.BadParameter(f"--mutant {name}: need one of {', '.join(sorted(MUTANTS))}")
    return name


def _bar(console: Console) -> Progress:
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    return Progress(TextColumn("{task.description}"), *columns, console=console, transient=True)


def _plain(console: Console) -> "partial[None]":
    return partial(console.print, markup=False, highlight=False, soft_wrap=True)


def _show(console: Console, done: Batch, seconds: float) -> None:
    names = {*SOMETIMES, *done.counters}
    faults = sorted(name for name in names if name.startswith("fault: "))
    rare = sorted(name for name in names if name not in faults and not CRASH.match(name))
    console.print(_counts("what went wrong", faults, done))
    console.print(_coverage(done))
    console.print(_counts("what happened", rare, done))
    rate = f"{done.seeds / max(seconds, 1e-9):.1f} seeds and {done.steps / max(seconds, 1e-9):.0f} steps a second"
    average = f"{done.faults / max(done.seeds, 1):.1f} faults a seed"
    console.print(
        f"{done.seeds} seeds from {done.first}, {done.steps} steps, {done.faults} faults that hit something, "
        f"{len(done.failures)} failures; {average}, {rate}, {seconds:.0f} s"
    )


def _counts(title: str, names: Iterable[str], done: Batch) -> Table:
    table = Table(title=title)
    table.add_column("")
    table.add_column("times", justify="right")
    table.add_column("in seeds", justify="right")
    for name in names:
        style = "red" if name in SOMETIMES and not done.counters[name] else ""
        table.add_row(name.removeprefix("fault: "), str(done.counters[name]), str(done.seeds_with[name]), style=style)
    return table


def _coverage(done: Batch) -> Table:
    table = Table(title="crashes at I/O boundaries")
    table.add_column("call")
    for side in SIDES:
        table.add_column(side, justify="right")
    for call in (*CALLS, *LOGICAL_CALLS):
        counts = [done.counters[f"crash {side} {call}"] for side in SIDES]
        table.add_row(call, *map(str, counts), style="" if all(counts) else "red")
    return table


def _show_run(console: Console, result: Result) -> None:
    out = _plain(console)
    out(f"seed {result.seed}: {result.shape}")
    out("\n".join(f"  {line}" for line in result.faults) or "  no fault")
    out("\n".join(f"    {line}" for line in result.trace[-LINES:]))


def _show_failure(console: Console, result: Result, mutant: str | None) -> None:
    _show_run(console, result)
    out = _plain(console)
    out(f"{result.violation}")
    out(f"repeat it: {repeat_command(result, mutant, result.cut)}")
    if result.cut.options():
        out(f"all of it: {repeat_command(result, mutant)}")


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def simulate(
    *,
    seed: Annotated[int | None, typer.Option(help="Run this one: its faults, its trace, its digest.", min=0)] = None,
    seeds: Annotated[str | None, typer.Option(metavar="A..B", help="Default: 1000, from a fresh one on.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Fresh seeds until the time is over.", min=0)] = None,
    mutant: Annotated[str | None, typer.Option(metavar="NAME", help="Bring a known mistake back.")] = None,
    every_mutant: Annotated[bool, typer.Option("--all-mutants", help="Hunt every known mistake.")] = False,
    hunts: Annotated[
        list[str] | None, typer.Option("--hunt", metavar="NAME", help="Hunt this known mistake from --seed on.")
    ] = None,
    mend: Annotated[bool, typer.Option("--mend-mutants", help="Hunt those that their known seed misses.")] = False,
    processes: Annotated[int, typer.Option(help="Default: one a core.", min=1)] = os.cpu_count() or 1,
    faults: Annotated[str | None, typer.Option(metavar="N,N…", help="With --seed: these faults only.")] = None,
    records: Annotated[int | None, typer.Option(help="With --seed: that many of each input only.", min=0)] = None,
    tasks: Annotated[int | None, typer.Option(help="With --seed: that many of a stage at most.", min=1)] = None,
    world: Annotated[str, typer.Option(help="With --seed: aligned, deterministic or mixed.")] = "aligned",
    steps: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --seed: write each event and action of the run here.")
    ] = None,
) -> None:
    """Run the protocol in simulated worlds of crashes, pauses and zombies; exit 1 if an invariant breaks."""
    if mend:
        for kill in mend_known(processes):
            typer.echo(f"{kill.name}: seed {kill.seed}, {kill.invariant}")
        raise typer.Exit
    if hunts:
        raise typer.Exit(some_mutants(filter(check_mutant, hunts), seed or 0, processes))
    if every_mutant:
        raise typer.Exit(all_mutants(processes))
    if seed is not None:
        raise typer.Exit(replay(seed, mutant, cut_for(faults, records, tasks), world_of(world), steps))
    if steps is not None:
        raise typer.BadParameter("--steps FILE tells one run: need --seed N, too")
    raise typer.Exit(batch(asked_for(seeds, minutes, mutant, processes, secrets.randbelow(1 << 40))))


if __name__ == "__main__":
    app(prog_name="python -m tests.verification.simulation")
