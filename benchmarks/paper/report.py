"""The tables of the page, made from the rows alone."""

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence

from benchmarks.latency.cell import RATE
from benchmarks.paper.plan import (
    CURVE,
    CURVE_MS,
    HOSTED,
    INTERVALS_MS,
    KILLED,
    LOADS,
    REPEATED,
    WIDE,
    WIDE_RATE,
    WIDTHS,
)
from benchmarks.paper.rows import Row
from benchmarks.paper.techniques import BASE, GUARANTEES, PEER_MODES, base_of, shown
from benchmarks.results import Cell, Table

PERCENTILES = ("p50", "p75", "p95", "p99")  # the paper's
LATENCY = f"{' / '.join(PERCENTILES)} ms (checkpoints; load average)"
COUNTS = {3: "Three", 4: "Four"}


def tables(rows: Sequence[Row]) -> list[Table]:
    """Return every table that there are figures for."""
    measured = [row for row in rows if "failed" not in row]
    parts = (_steady, _overhead, _repeats, _widths, _costs, _machines, _curve, _killed, _recovery)
    return [table for part in parts if (table := part(measured)).rows]


def left_out(rows: Iterable[Row]) -> list[str]:
    """Return the runs that do not count, each with the reason."""
    return [f"{row['name']}: {row['failed']}" for row in rows if "failed" in row]


def steady(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of two tasks a stage at the paper's load, without kills."""
    return [row for row in _runs(rows) if row["tasks"] == WIDTHS[1] and row["rate"] == RATE]


def widths(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of all sizes of the graph."""
    return [row for row in _runs(rows) if row["rate"] == WIDE_RATE]


def machines(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of workers on machines."""
    return [row for row in rows if "machines" in row]


def curve(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of rising load."""
    return [
        row
        for row in _runs(rows)
        if row["mode"] in (*CURVE, *PEER_MODES) and row["rate"] in LOADS and row["checkpoint_interval_ms"] == CURVE_MS
    ]


def repeats(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of equal runs."""
    return [row for row in rows if "number" in row]


def killed(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of runs with kills."""
    return [row for row in rows if "kills_s" in row]


def recovery(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of sizes of state."""
    return [row for row in rows if "keys" in row]


def _runs(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if "mode" in row and not {"kills_s", "number", "machines"} & row.keys()]


def latency(row: Row | None) -> str | None:
    """Return the percentiles, and what belongs beside them."""
    if row is None:
        return None
    counted = None if row["mode"] == "no guarantee" else row["checkpoints"]
    checkpoints = f"{counted:,}" if counted is not None else "none" if row["mode"] == "no guarantee" else "–"
    full = ", saturated" if row["saturated"] else ""
    figures = " / ".join(f"{row[f'{name}_ms']:,.1f}" for name in PERCENTILES)
    return f"{figures} ({checkpoints}; {row['load']:.1f}){full}"


def _grid(
    rows: Iterable[Row], modes: Iterable[str], by: str, values: Sequence[float], cell: Callable[[Row | None], Cell]
) -> list[list[Cell]]:
    """Return a line for each technique that has a row: its cells by the value of a field."""
    found = {(row["mode"], row[by]): row for row in rows}
    known = {mode for mode, _ in found}
    return [[shown(mode), *(cell(found.get((mode, value))) for value in values)] for mode in modes if mode in known]


def _steady(rows: Sequence[Row]) -> Table:
    found = steady(rows)
    grid = _grid(found, GUARANTEES, "checkpoint_interval_ms", sorted(INTERVALS_MS), latency)
    names = {shown(mode): mode for mode in GUARANTEES}
    costs = {shown(row["mode"]): row for row in found if row["checkpoint_interval_ms"] == CURVE_MS}
    lines: list[list[Cell]] = [
        [
            name,
            GUARANTEES[names[str(name)]],
            *cells,
            _cpu(costs.get(str(name))),
            _index([row for row in found if shown(row["mode"]) == name]),
        ]
        for name, *cells in grid
    ]
    columns = ["technique", "guarantee", *(f"{interval:,} ms" for interval in sorted(INTERVALS_MS))]
    columns += [f"CPU ms a document at {CURVE_MS} ms", "index in the end"]
    title = f"Guarantees and techniques, 2 × 2 tasks, 50 documents a second, by checkpoint interval: {LATENCY}"
    return Table(title, columns, lines)


def _index(rows: Sequence[Row]) -> str:
    """Return whether all runs have left the index of the plain recount."""
    if rows[0]["index"] is None:
        return "outputs equal"
    worst = max(sum(count for name, count in row["index"].items() if name != "postings") for row in rows)
    return "equal" if not worst else f"off by {worst:,}"


def _overhead(rows: Sequence[Row]) -> Table:
    """Return the percentiles of each technique above those of at-least-once, of the same system and interval."""
    found = steady(rows)
    bases = {(row["mode"], row["checkpoint_interval_ms"]): row for row in found if row["mode"] == base_of(row["mode"])}

    def over(row: Row | None) -> Cell:
        base = None if row is None else bases.get((base_of(row["mode"]), row["checkpoint_interval_ms"]))
        if row is None or base is None:
            return None
        return " / ".join(f"{row[f'{name}_ms'] - base[f'{name}_ms']:+,.1f}" for name in PERCENTILES)

    intervals = sorted(INTERVALS_MS)
    grid = _grid(
        found, [mode for mode in GUARANTEES if mode != base_of(mode)], "checkpoint_interval_ms", intervals, over
    )
    title = f"The same runs: ms over {BASE} of the same system at the same interval, {' / '.join(PERCENTILES)}"
    columns = ["technique", *(f"{interval:,} ms" for interval in intervals)]
    return Table(title, columns, grid if bases else [])


def _repeats(rows: Sequence[Row]) -> Table:
    """Return from where to where each percentile of equal runs goes."""
    lines: list[list[Cell]] = []
    for mode in REPEATED:
        own = [row for row in repeats(rows) if row["mode"] == mode]
        if own:
            spread = [_range([row[f"{name}_ms"] for row in own]) for name in PERCENTILES]
            lines.append([shown(mode), len(own), *spread, _range([row["load"] for row in own])])
    columns = ["technique", "runs", *(f"{name} ms" for name in PERCENTILES), "load average"]
    title = f"Equal runs, 2 × 2 tasks, 50 documents a second, {CURVE_MS} ms between checkpoints: least to most"
    return Table(title, columns, lines)


def _range(values: Sequence[float]) -> str:
    return f"{min(values):,.1f} to {max(values):,.1f}"


def _widths(rows: Sequence[Row]) -> Table:
    columns = ["technique", *(f"{tasks} × {tasks}" for tasks in WIDTHS)]
    title = f"Tasks a stage, {WIDE_RATE:.0f} documents a second, {CURVE_MS} ms between checkpoints: {LATENCY}"
    return Table(title, columns, _grid(widths(rows), WIDE, "tasks", WIDTHS, latency))


def _machines(rows: Sequence[Row]) -> Table:
    """Return latency and cost by the number of machines."""
    found = machines(rows)

    def cell(row: Row | None) -> Cell:
        return None if row is None else f"{latency(row)}; {_cpu(row)} ms of CPU"

    columns = ["technique", *(str(count) for count in WIDTHS)]
    title = f"Machines with a worker each, {WIDE_RATE:.0f} documents a second, {CURVE_MS} ms between checkpoints: "
    return Table(f"{title}{LATENCY}; CPU a document", columns, _grid(found, HOSTED, "tasks", WIDTHS, cell))


def _costs(rows: Sequence[Row]) -> Table:
    columns = ["technique", *(f"{tasks} × {tasks}" for tasks in WIDTHS)]
    cells = _grid(widths(rows), WIDE, "tasks", WIDTHS, _cpu)
    return Table("The same runs: CPU ms of all workers a document", columns, cells)


def _cpu(row: Row | None) -> Cell:
    cost: float | None = None if row is None else row["cpu_ms_a_document"]
    return cost


def _curve(rows: Sequence[Row]) -> Table:
    columns = ["technique", *(f"{rate:.0f} a second" for rate in LOADS)]
    title = f"Latency over load, 2 × 2 tasks, {CURVE_MS} ms between checkpoints: {LATENCY}"
    return Table(title, columns, _grid(curve(rows), (*CURVE, *PEER_MODES), "rate", LOADS, latency))


def _killed(rows: Sequence[Row]) -> Table:
    by = {row["mode"]: row for row in killed(rows)}
    lines: list[list[Cell]] = [
        [
            shown(mode),
            ", ".join(f"{seconds:.2f}" for seconds in row["first_output_s"]),
            latency(row),
            row["records_again"],
            row["records_lost"],
            row["documents_lost"],
            row["index"]["counted_again"],
            row["index"]["not_counted"],
        ]
        for mode in KILLED
        if (row := by.get(mode))
    ]
    columns = ["technique", "first output after a kill, s", LATENCY, "outputs again", "outputs lost"]
    columns += ["documents not whole", "index: counted again", "index: not counted"]
    kills: list[float] = next((row["kills_s"] for row in by.values()), [])
    dead = f"{COUNTS.get(len(kills), len(kills))} workers killed by SIGKILL, one every {_every(kills):.0f} s"
    title = f"{dead}; 2 × 2 tasks, 50 documents a second, 1,000 ms"
    return Table(title, columns, lines)


def _every(times: Sequence[float]) -> float:
    return statistics.median([after - before for before, after in itertools.pairwise(times)] or [0.0])


def _recovery(rows: Sequence[Row]) -> Table:
    lines: list[list[Cell]] = [
        [f"{row['keys']:,}", row["state_mib"], row["same_host_s"], row["other_host_s"], row["rounds"], row["load"]]
        for row in sorted(recovery(rows), key=lambda row: row["keys"])
    ]
    columns = ["postings", "stores, MiB", "same host, s", "another host, s", "rounds", "load average"]
    title = "All workers killed: s until every task takes input again, median of the rounds"
    return Table(title, columns, lines)
