"""The same rows as pictures. Needs the extra ``bench``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.latency.pictures import COLOURS, begin, figure_of, save
from benchmarks.paper.plan import CURVE_MS
from benchmarks.paper.report import PERCENTILES, curve, killed, recovery, steady, widths
from benchmarks.paper.rows import Row
from benchmarks.paper.techniques import GUARANTEES, MICRO_BATCHES, PEER_MODES, STRONG, TECHNIQUES, base_of, shown
from benchmarks.peers.tools import PEERS

_COLOURS = (
    COLOURS
    | {"at-most-once": "#d99000", STRONG: "#8d6e63", MICRO_BATCHES: "#444444"}
    | {mode: COLOURS[PEERS[mode].tool.name] for mode in PEER_MODES}
)


def draw(rows: Iterable[Row], directory: Path) -> None:
    """Write paper-intervals.svg, paper-load.svg, paper-kills.svg, paper-tasks.svg, paper-recovery.svg."""
    begin(directory)
    rows = [row for row in rows if "failed" not in row]
    for name, chosen, drawn in (
        ("intervals", steady(rows), _intervals),
        ("load", curve(rows), lambda chosen, path: _load([*chosen, *_at_one_interval(steady(rows))], path)),
        ("kills", killed(rows), _kills),
        ("tasks", widths(rows), _tasks),
        ("recovery", recovery(rows), _recovery),
    ):
        if chosen:
            drawn(chosen, directory / f"paper-{name}.svg")


def _lines(panel: Any, rows: Sequence[Row], x: str, y: str) -> list[Any]:
    """Draw a line for each technique; return the values of ``x``."""
    values = sorted({row[x] for row in rows})
    for mode in GUARANTEES:
        points = sorted((row[x], row[y]) for row in rows if row["mode"] == mode)
        if not points:
            continue
        across, up = [each for each, _ in points], [each for _, each in points]
        if mode in TECHNIQUES and TECHNIQUES[mode].fixed.get(x):  # the same at each interval
            across, up = [values[0], values[-1]], up * 2
        panel.plot(across, up, _style(mode), color=_COLOURS[mode], markersize=3, label=shown(mode))
    panel.set_xticks(values, [f"{value:,.0f}" for value in values])
    return values


def _style(mode: str) -> str:
    """Return that of a line: a peer's, which has the colour of its tool, is none of ours."""
    if mode not in PEERS:
        return "o-"
    return "s:" if mode == base_of(mode) else "s--"


def _at_one_interval(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a table of intervals that belong to a curve of loads, too."""
    return [row for row in rows if row["checkpoint_interval_ms"] == CURVE_MS and row["mode"] != "no guarantee"]


def _percentiles(rows: Sequence[Row], x: str, label: str, path: Path) -> None:
    """Draw the paper's percentiles, a panel each."""
    figure, drawn = figure_of(2, 2)
    for panel, quantile in zip(drawn, PERCENTILES, strict=True):
        panel.set(xscale="log", yscale="log", xlabel=label, ylabel="latency of a document, ms")
        _lines(panel, rows, x, f"{quantile}_ms")
        panel.minorticks_off()
        panel.set_title(f"{quantile}, 2 × 2 tasks", fontsize=9)
    save(figure, drawn, path)


def _intervals(rows: Sequence[Row], path: Path) -> None:
    _percentiles(rows, "checkpoint_interval_ms", "checkpoint interval, ms", path)


def _load(rows: Sequence[Row], path: Path) -> None:
    _percentiles(rows, "rate", "documents a second", path)


def _tasks(rows: Sequence[Row], path: Path) -> None:
    """Draw latency and cost over the size of the graph."""
    figure, drawn = figure_of(1, 2)
    for panel, y, label in zip(
        drawn, ("p99_ms", "cpu_ms_a_document"), ("p99 of a document, ms", "CPU ms a document"), strict=True
    ):
        panel.set(xscale="log", yscale="log", xlabel="tasks a stage", ylabel=label)
        _lines(panel, rows, "tasks", y)
        panel.minorticks_off()
    save(figure, drawn, path)


def _kills(rows: Sequence[Row], path: Path) -> None:
    """Draw the worst document of each quarter of a second over time, a panel for each two techniques."""
    figure, drawn = figure_of((len(rows) + 1) // 2, 2)
    for panel, row in zip(drawn, rows, strict=False):
        panel.plot(*zip(*row["worst_ms"], strict=True), color=_COLOURS[row["mode"]], linewidth=1)
        for kill in row["kills_s"]:
            panel.axvline(kill, color="#bb0000", linewidth=0.6, alpha=0.4)
        panel.set(yscale="log", ylim=(1, 20_000), xlabel="time of sending, s", ylabel="latency, ms")
        panel.set_title(f"{shown(row['mode'])}: a worker killed at each red line", fontsize=9)
    for panel in drawn[len(rows) :]:
        panel.remove()
    save(figure, drawn, path)


def _recovery(rows: Sequence[Row], path: Path) -> None:
    """Draw both recoveries over the size of the state."""
    figure, (panel,) = figure_of(1, 1)
    rows = sorted(rows, key=lambda row: int(row["keys"]))
    for name, label in (("other_host_s", "another host"), ("same_host_s", "same host")):
        panel.plot([row["keys"] for row in rows], [row[name] for row in rows], "o-", markersize=3, label=label)
    panel.set(xscale="log", yscale="log", xlabel="postings in the index", ylabel="s until every task takes input")
    save(figure, [panel], path)
