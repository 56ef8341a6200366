"""The latency experiment: ``make bench EXPERIMENT=latency [LOG=…] [SECONDS_EACH=8] [QUICK=1] [PEERS=1] [WRITE=1]``.

Each cell is a run of its own, with processes and topics of its own, one after the other. LOG: embedded, kafka (a broker
of its own), kafka://host:port; by default both logs, Kafka with a broker of its own. PEERS: 1 for all, or names with
commas: other stream processors with the same job, on Kafka.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.latency.articles import paragraphs
from benchmarks.latency.cell import RATE
from benchmarks.latency.modes import MODES
from benchmarks.latency.pictures import draw
from benchmarks.latency.report import as_cells, figures, peers_table, tables
from benchmarks.latency.results import KILLS_S, QUICK_KILLS_S, Cell, Found
from benchmarks.peers.tools import PEERS, TOOLS, asked_peers
from benchmarks.results import Kept, Run, write
from benchmarks.running import console, measure_any, taken, where
from grete.errors import ConfigError
from grete.logs.address import EMBEDDED, KAFKA
from grete.testing.broker import find_broker

INTERVALS_MS = (100, 500, 1_000, 5_000)
QUIET_S = 5.0  # after the last kill
OUT = Path("benchmarks/out")


def plan(
    logs: Sequence[str], seconds: float, modes: Sequence[str], tools: Sequence[str], *, quick: bool
) -> Iterator[Cell]:
    """Yield all cells: the rows of a table close to each other, so that they meet the same machine."""
    for log in logs:
        peers = [name for name, peer in PEERS.items() if log != EMBEDDED and peer.tool.name in tools]
        if log != EMBEDDED:
            yield from (Cell("warm-up", log, mode, 1_000, 2, seconds) for mode in modes)  # a cold broker compiles
        for interval in (1_000,) if quick else INTERVALS_MS:
            yield from (
                Cell("steady", log, mode, interval, 2, max(seconds, 3 * interval / 1000))
                for mode in (*modes, *peers)
                if _has(mode, interval)
            )
        if not quick and log != EMBEDDED:
            yield from (Cell("wide", log, mode, 1_000, 4, seconds) for mode in modes if MODES[mode].checkpoints)
        if not quick or log != EMBEDDED:
            length = (QUICK_KILLS_S if quick else KILLS_S)[-1] + QUIET_S
            yield from (Cell("kills", log, mode, 1_000, 2, length) for mode in modes if MODES[mode].checkpoints)


def _has(mode: str, interval_ms: int) -> bool:
    """Tell whether a mode, or a peer, is measured with an interval."""
    if mode in PEERS:
        return interval_ms >= PEERS[mode].tool.interval_ms_min
    return MODES[mode].checkpoints or interval_ms == 1_000


def measure_all(cells: Sequence[Cell], addresses: dict[str, str], found: Found) -> None:
    """Run all cells, with a bar; what is there is kept in benchmarks/out, should the run end early.

    A peer whose run does not count is left out, and said so; an invalid run of ours ends all.
    """
    OUT.mkdir(exist_ok=True)
    columns = (TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(cells))
        for cell in cells:
            name = f"{cell.log} {cell.partitions}×2, {cell.mode}, {cell.checkpoint_interval_ms:,} ms"
            progress.update(bar, description=f"{cell.kind}: {name}")
            try:
                result = measure_any("benchmarks.latency.cell", addresses[cell.log], *cell.arguments)
            except SystemExit as error:
                if cell.mode not in PEERS:
                    raise
                leave_out(found, f"{name}: {error}")
            else:
                if cell.kind != "warm-up":
                    found.results.append((cell, result))
                shown = " ".join(f"{name} {result[name]:.0f}" for name in ("p50", "p75", "p95", "p99", "max"))
                console.print(f"{name}: {shown} ms", soft_wrap=True)
            found.keep(OUT / "latency.json")
            progress.advance(bar)


def leave_out(found: Found, why: str) -> None:
    """Note what is not measured, and say so."""
    found.left_out.append(why)
    console.print(f"[bold red]left out[/]: {escape(why)}", soft_wrap=True)


def main() -> None:
    """Run the experiment, print its tables; with --write, put them and the pictures into docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", default=os.environ.get("LOG") or "")
    parser.add_argument(
        "--seconds", type=float, default=float(os.environ.get("SECONDS_EACH") or 0), help="of each cell"
    )
    parser.add_argument("--mode", action="append", choices=list(MODES), help="only this one; may be repeated")
    parser.add_argument(
        "--peer", action="append", choices=list(TOOLS), help="with this one; alone, if there is no --mode"
    )
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")), help="below 2 minutes")
    parser.add_argument("--write", action="store_true", default=bool(os.environ.get("WRITE")), help="docs/results")
    parser.add_argument("--again", type=Path, help="no run: tables and pictures of the figures in this file")
    options = parser.parse_args()
    if options.again:
        found = Found.kept(options.again)
    else:
        seconds = options.seconds or (3.0 if options.quick else 8.0)
        modes = options.mode or ([] if options.peer else list(MODES))
        found = experiment(options.log, seconds, modes, options.peer or asked_peers(), quick=options.quick)
    console.print(found.where, soft_wrap=True)
    text = figures(found.results, found.left_out)
    console.print(text, markup=False, soft_wrap=True)
    if options.write:
        draw(found.results, Path("docs/images"))
        write("latency", for_docs(found))


def for_docs(found: Found) -> Kept:
    """Return a run as docs/results has it. Raises SystemExit for one that an earlier build has kept."""
    if found.run is None:
        raise SystemExit("this run was kept without its commit and command: measure again")
    cells = as_cells(found.results)
    run = msgspec.convert(found.run | {"tables": [*tables(cells), *peers_table(found.results)]}, Run)
    return Kept([run], cells)


def experiment(log: str, seconds: float, modes: Sequence[str], tools: Sequence[str], *, quick: bool) -> Found:
    """Run all cells on one log, or on both."""
    console.print(f"{len(paragraphs()):,} paragraphs of real articles, {RATE:.0f} documents a second")
    place = f"{where('confluent-kafka', 'rocksdict', 'msgspec')}, {seconds:.0f} s a run{', quick' if quick else ''}"
    run = taken("confluent-kafka", "rocksdict", "msgspec")
    run.notes = [f"{seconds:.0f} s a run."]
    found = Found(place, [], [], msgspec.to_builtins(run))
    addresses: dict[str, str] = {}
    with ExitStack() as stack:
        if log.startswith(KAFKA):
            addresses["kafka"] = log
        elif log != EMBEDDED:
            try:
                broker = stack.enter_context(find_broker(loaded=True))
                addresses["kafka"] = KAFKA + broker.bootstrap
                console.print(f"Kafka: {broker.how}")
            except ConfigError as error:
                if log:
                    raise
                console.print(f"without Kafka: {error}")
        if log in ("", EMBEDDED):
            addresses[EMBEDDED] = EMBEDDED
        if tools and "kafka" not in addresses:
            leave_out(found, f"{', '.join(tools)}: they need Kafka")
        ready = prepared(tools, found) if "kafka" in addresses else []
        cells = list(plan(list(addresses), seconds, modes, ready, quick=quick))
        measure_all(cells, addresses, found)
    return found


def prepared(tools: Sequence[str], found: Found) -> list[str]:
    """Return the peers that can be run here: the first time they are fetched and compiled."""
    ready = []
    for tool in tools:
        try:
            TOOLS[tool].command("Index")
            ready.append(tool)
        except ConfigError as error:
            leave_out(found, f"{tool}: {error}")
    return ready


if __name__ == "__main__":
    main()
