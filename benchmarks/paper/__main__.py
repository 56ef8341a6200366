"""The paper's experiments: ``make bench EXPERIMENT=paper [LOG=…] [MINUTES=…] [WRITE=1]``.

Each cell is a run of its own, with processes and topics of its own, and is kept in benchmarks/out as soon as it has
ended. So the experiment can be cut at any time, or end itself after MINUTES (0: it runs nothing), and the same command
goes on with what is missing, as long as the commit is the same. LOG: kafka (a broker of its own), kafka://host:port, or
embedded. WRITE: puts docs/results/paper.json, the tables of its page and the pictures into docs, of what is there.
ONLY=steady,kills,sizes,widths,machines,repeats,loads: runs these parts alone; their tables take the place of those of
the page. Machines are network namespaces with a broker at their switch, as root.
PEERS=1: Flink and Kafka Streams run the same job beside it; PEERS=Flink: one of them.
"""

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.paper.machines import network
from benchmarks.paper.pictures import draw
from benchmarks.paper.plan import CURVE_MS, PARTS, WIDTHS, Cell, Size, all_cells, beyond
from benchmarks.paper.report import curve, killed, left_out, machines, recovery, repeats, steady, tables, widths
from benchmarks.paper.rows import Kept, Row, row_of
from benchmarks.paper.techniques import PEER_TOOLS
from benchmarks.peers.tools import TOOLS
from benchmarks.results import Kept as Results
from benchmarks.results import markdown, read, write
from benchmarks.running import console, measure_any, taken
from grete.errors import ConfigError
from grete.logs.address import EMBEDDED, KAFKA
from grete.testing.broker import find_broker

OUT = Path("benchmarks/out")
CHOSEN = {  # part → its rows
    "steady": steady,
    "kills": killed,
    "sizes": recovery,
    "widths": widths,
    "machines": machines,
    "repeats": repeats,
    "loads": curve,
}
NAMES = tuple(tool.name for tool in PEER_TOOLS)
WORDS_MAX = 200  # of an error that is kept
WARM_UP = Cell("deterministic", CURVE_MS)  # a cold broker compiles


def run_all(cells: Sequence[Cell | Size], kept: Kept, log: str, minutes: float | None) -> None:
    """Run what is missing, and tell how far it is. A run that does not count is kept as such, and tried again."""
    left = [cell for cell in cells if "failed" in kept.rows.get(cell, {"failed": ""}) and not beyond(cell, kept.rows)]
    total_s = sum(cell.takes_s for cell in left)
    console.print(
        f"{len(left)} of {len(cells)} cells to run, about {total_s / 60:.0f} minutes"
        + ("" if minutes is None else f"; it ends before {minutes:g} have passed, and goes on when it is run again")
    )
    if not left or minutes == 0:
        return
    end = None if minutes is None else time.monotonic() + 60 * minutes
    columns = (TextColumn("{task.description:<60}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    for hosted in (False, True):
        chosen = [cell for cell in left if (isinstance(cell, Cell) and cell.machines) is hosted]
        if not chosen:
            continue
        with ExitStack() as stack:
            on, place = stack.enter_context(network(WIDTHS[-1])) if hosted else ("", log)
            if place == "kafka":
                place = KAFKA + stack.enter_context(find_broker(loaded=True)).bootstrap
            if place != EMBEDDED:
                measured(WARM_UP, place)  # whatever comes of it: a cold broker may be too slow to count
            progress = stack.enter_context(Progress(*columns, console=console))
            bar = progress.add_task("", total=len(chosen))
            for cell in chosen:
                if end is not None and time.monotonic() + cell.takes_s > end:
                    continue  # a shorter one may fit
                if not beyond(cell, kept.rows):
                    progress.update(bar, description=cell.name)
                    kept.keep(cell, measured(cell, place, on))
                progress.advance(bar)


def prepared(asked: str) -> list[str]:
    """Return the names of the peers that are asked for; the first time they are fetched and compiled.

    Raises SystemExit for one that does not take part, and where one cannot be had.
    """
    names = list(NAMES) if asked == "1" else [name.strip() for name in asked.split(",") if name.strip()]
    if unknown := [name for name in names if name not in NAMES]:
        raise SystemExit(f"PEERS={asked}: {unknown[0]} takes no part; 1 for all, or: {', '.join(NAMES)}")
    try:
        for name in names:
            TOOLS[name].command("Index")
    except ConfigError as error:
        raise SystemExit(f"PEERS={asked}: {error}") from error
    return names


def measured(cell: Cell | Size, log: str, on: str = "") -> Row:
    """Run a cell, on the machines of a network if one is named; return its row, or why it does not count."""
    try:
        row = row_of(cell, measure_any(cell.module, log, *cell.arguments, *([f"machines={on}"] if on else [])))
    except SystemExit as error:
        row = {"name": cell.name, "failed": str(error).strip().splitlines()[-1][:WORDS_MAX]}
    shown = ", ".join(f"{name} {row[name]}" for name in ("p50_ms", "p99_ms", "failed", "other_host_s") if name in row)
    console.print(f"{cell.name}: {shown}", soft_wrap=True, markup=False)
    return row


def results(cells: Sequence[Cell | Size], kept: Kept, log: str) -> Results:
    """Return the results so far, as docs/results has them."""
    run = taken("confluent-kafka", "rocksdict", "msgspec")
    rows = [kept.rows[cell] for cell in cells if cell in kept.rows]
    missing = [cell.name for cell in cells if cell not in kept.rows and not beyond(cell, kept.rows)]
    run.command = "make bench EXPERIMENT=paper"
    run.notes = ["On Kafka." if log.startswith("kafka") else "On the embedded log."]
    run.notes += [f"Does not count: {why}." for why in left_out(rows)]
    run.notes += [f"Not measured: {'; '.join(missing)}."] if missing else []
    run.tables = tables(rows)
    return Results([run], rows)


def beside(earlier: Results, found: Results) -> Results:
    """Return earlier results in which the tables of ``found``, a run of some parts, take the place of theirs."""
    new = {part for part, chosen in CHOSEN.items() if chosen(found.cells)}
    replaced = [row for part in new for row in CHOSEN[part](earlier.cells)]
    left = [row for row in earlier.cells if row not in replaced]
    now = {table.title: table for table in tables(left)}
    for run in earlier.runs:
        run.tables = [now[table.title] for table in run.tables if table.title in now]
    return Results([*(run for run in earlier.runs if run.tables), *found.runs], [*left, *found.cells])


def main() -> None:
    """Run what is missing; print the tables; with --write, put them and the pictures into docs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", default=os.environ.get("LOG") or "kafka")
    parser.add_argument(
        "--minutes", type=float, default=os.environ.get("MINUTES") or None, help="then it ends itself; 0: only the page"
    )
    parser.add_argument("--only", default=os.environ.get("ONLY") or "", help=f"parts, of {', '.join(PARTS)}")
    parser.add_argument("--peers", default=os.environ.get("PEERS") or "", help=f"1, or of {', '.join(NAMES)}")
    parser.add_argument("--write", action="store_true", default=bool(os.environ.get("WRITE")), help="docs/results")
    options = parser.parse_args()
    asked = options.only.split(",") if options.only else []
    if unknown := [part for part in asked if part not in PARTS]:
        parser.error(f"--only {options.only}: no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    peers = prepared(options.peers)
    cells = all_cells(peers, asked or tuple(PARTS))
    kept = Kept(OUT / f"paper-{taken().commit}-{options.log.partition(':')[0]}", cells)
    run_all(cells, kept, options.log, options.minutes)
    found = results(cells, kept, options.log)
    if asked:
        found.runs[0].command += f" ONLY={options.only}"
    if peers:
        found.runs[0].command += f" PEERS={options.peers}"
        found.runs[0].notes += [f"{name} {TOOLS[name].version}: {TOOLS[name].settings}." for name in peers]
    console.print(markdown(found), markup=False, soft_wrap=True)
    if options.write:
        found = beside(read("paper"), found) if asked else found
        draw(found.cells, Path("docs/images"))
        write("paper", found)


if __name__ == "__main__":
    main()
