"""The same figures as pictures. Needs the extra ``bench``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.latency.cell import Result
from benchmarks.latency.report import NAMES

if TYPE_CHECKING:
    from benchmarks.latency.__main__ import Cell

BIN_S = 0.1  # of a curve over time: its worst document
COLOURS = {
    "no guarantee": "#888888",
    "at-least-once": "#1b7f4d",
    "exactly-once": "#b3541e",
    "deterministic": "#2457a8",
}
Results = Sequence[tuple["Cell", Result]]


def draw(results: Results, directory: Path) -> None:
    """Write latency-intervals.svg and latency-kills.svg."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "grete", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    mpl.rcParams |= {"axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False}
    directory.mkdir(exist_ok=True)
    _intervals(results, directory / "latency-intervals.svg")
    _kills([each for each in results if each[0].kind == "kills"], directory / "latency-kills.svg")


def _panels(rows: int, columns: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.0 * rows + 0.6), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _save(figure: Any, panels: list[Any], path: Path) -> None:
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def _intervals(results: Results, path: Path) -> None:
    """Draw p50 and p99 over the checkpoint interval, a panel a log."""
    logs = list(dict.fromkeys(cell.log for cell, _ in results))
    figure, panels = _panels(1, len(logs))
    for panel, log in zip(panels, logs, strict=True):
        steady = [(cell, result) for cell, result in results if (cell.kind, cell.log) == ("steady", log)]
        intervals = sorted({cell.interval_ms for cell, _ in steady})
        for mode in dict.fromkeys(cell.mode for cell, _ in steady):
            points = sorted((cell.interval_ms, result) for cell, result in steady if cell.mode == mode)
            for quantile, style in (("p50", "o-"), ("p99", "o--")):
                x, y = [interval for interval, _ in points], [result[quantile] for _, result in points]
                if mode == "no guarantee":  # the same at each interval
                    x, y = [intervals[0], intervals[-1]], y * 2
                panel.plot(x, y, style, color=COLOURS[mode], markersize=3, label=f"{mode}, {quantile}")
        panel.set(xscale="log", yscale="log", xlabel="checkpoint interval, ms", ylabel="latency of a document, ms")
        panel.set_xticks(intervals, [f"{interval:,}" for interval in intervals])
        panel.set_title(f"{NAMES[log]}, two stages of two tasks", fontsize=9)
    _save(figure, panels, path)


def _kills(results: Results, path: Path) -> None:
    """Draw the latency over time of each run with kills, the worst document of each tenth of a second."""
    logs = list(dict.fromkeys(cell.log for cell, _ in results))
    if not logs:
        return
    figure, panels = _panels(len(logs), 1)
    for panel, log in zip(panels, logs, strict=True):
        for cell, result in (each for each in results if each[0].log == log):
            worst: dict[int, float] = {}
            for sent, latency in zip(result["sent_s"], result["latencies_ms"], strict=True):
                number = int(sent / BIN_S)
                worst[number] = max(latency, worst.get(number, 0.0))
            x = [number * BIN_S for number in worst]
            label = f"{cell.mode}, {cell.interval_ms:,} ms"
            panel.plot(x, list(worst.values()), color=COLOURS[cell.mode], linewidth=1, label=label)
            for kill in result["kills_s"]:
                panel.axvline(kill, color="#bb0000", linewidth=0.6, alpha=0.4)
        panel.set(yscale="log", xlabel="time of sending, s", ylabel="latency, ms")
        panel.set_title(f"{NAMES[log]}: a worker killed at each red line", fontsize=9)
    _save(figure, panels, path)
