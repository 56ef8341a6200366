"""The cost of a checkpoint interval: ``make bench EXPERIMENT=intervals [LOG=…] [ROUNDS=2] [WRITE=1]``.

A deterministic job lets its outputs go before their checkpoint, so an interval of ten minutes is to be as good as one
of 100 ms. The job is that of the latency experiment. A run need not last as long as its interval: all of its outputs
come before the first checkpoint.

In aligned mode outputs wait for their checkpoint, but throughput is not to depend on the interval. So a worker on the
embedded log reads all of its input and is stopped: the stop is its last commit.
"""

import os
import statistics
from contextlib import ExitStack

from rich.progress import track

from benchmarks.latency.report import NAMES
from benchmarks.results import Kept, Table, write
from benchmarks.running import console, measure_any, median, run_all, taken
from grete.logs.address import EMBEDDED, KAFKA
from grete.testing.broker import find_broker

INTERVALS_MS = (100, 1_000, 10_000, 60_000, 600_000)
MODES = ("deterministic", "deterministic, sequenced")
SECONDS = 4  # of documents that count, in a run
WORDS = 2_000_000  # that an aligned job counts, in a run

PATIENT = ("shutdown_timeout_ms=600000",)  # the last commit of a run may be large, and the machine busy

Cell = tuple[str, str, int]  # log, mode, interval in ms


def measured(addresses: dict[str, str], rounds: int) -> dict[Cell, list[tuple[float, float]]]:
    """Return (p50, p99) in ms of each round; the intervals of a mode come one after the other, as the machine is."""
    cells = [(log, mode, interval) for log in addresses for mode in MODES for interval in INTERVALS_MS]
    found: dict[Cell, list[tuple[float, float]]] = {cell: [] for cell in cells}
    for log, mode, interval in track(cells * rounds, "measuring", console=console):
        options = f"mode={mode}", f"checkpoint_interval_ms={interval}", f"seconds={SECONDS}"
        result = measure_any("benchmarks.latency.cell", addresses[log], *options)
        found[log, mode, interval].append((result["p50"], result["p99"]))
    return found


def table(found: dict[Cell, list[tuple[float, float]]]) -> Table:
    """Return a row for each log and mode: the medians of p50 and of p99 by interval."""
    rows: list[list[int | float | str | None]] = []
    for log, mode in dict.fromkeys((log, mode) for log, mode, _ in found):
        medians = [[statistics.median(each) for each in zip(*found[log, mode, i], strict=True)] for i in INTERVALS_MS]
        rows.append([NAMES[log], mode, *(f"{p50:.1f} / {p99:.1f}" for p50, p99 in medians)])
    return Table("p50 / p99 in ms by checkpoint interval", ["log", "mode", *(f"{i:,} ms" for i in INTERVALS_MS)], rows)


def aligned(rounds: int) -> Table:
    """Return the words of an aligned job a CPU second, and its commits, by interval: medians of the rounds."""
    options = {
        f"{interval:,} ms": ("stopped", f"words={WORDS}", f"checkpoint_interval_ms={interval}", *PATIENT)
        for interval in INTERVALS_MS
    }
    results = run_all("benchmarks.measure", options, rounds)
    rates, commits = (
        [median(results, label, figure) for label in options] for figure in ("words_per_cpu_s", "commits")
    )
    rows: list[list[int | float | str | None]] = [
        ["words a CPU second", *(f"{rate:,.0f}" for rate in rates)],
        ["of 100 ms", *(f"{rate / rates[0]:.2f}" for rate in rates)],
        ["commits of the source", *(f"{count:,.0f}" for count in commits)],
    ]
    return Table(f"Aligned mode, {WORDS:,} words, by checkpoint interval", ["", *options], rows)


def main() -> None:
    """Measure all on both logs, or on LOG; print the table, and with WRITE=1 put it into the docs."""
    log, rounds = os.environ.get("LOG") or "", int(os.environ.get("ROUNDS") or 2)
    run = taken("confluent-kafka", "rocksdict")
    run.notes = [f"{SECONDS} s a run, {rounds} rounds in turn, medians."]
    addresses = {} if log.startswith("kafka") else {EMBEDDED: EMBEDDED}
    with ExitStack() as stack:
        if log.startswith(KAFKA):
            addresses["kafka"] = log
        elif log != EMBEDDED:
            addresses["kafka"] = KAFKA + stack.enter_context(find_broker(loaded=True)).bootstrap
        run.tables = [table(measured(addresses, rounds)), aligned(rounds)]
    console.print_json(data=[each.rows for each in run.tables])
    if os.environ.get("WRITE"):
        write("intervals", Kept([run]))


if __name__ == "__main__":
    main()
