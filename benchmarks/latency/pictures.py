"""The same figures as pictures. Needs the extra ``bench``."""

from pathlib import Path
from typing import Any

from benchmarks.latency.modes import MODES
from benchmarks.latency.report import NAMES
from benchmarks.latency.results import Results
from benchmarks.peers.tools import PEERS

BIN_S = 0.1  # of a curve over time: its worst document
COLOURS = {
    "no guarantee": "#888888",
    "at-least-once": "#1b7f4d",
    "exactly-once": "#b3541e",
    "deterministic": "#2457a8",
    "deterministic, sequenced": "#12a0c8",
    "Flink": "#c2185b",
    "quixstreams": "#d99000",
    "Kafka Streams": "#6a4fa3",
    "Spark": "#e25a1c",
}


def draw(results: Results, directory: Path) -> None:
    """Write latency-intervals.svg, latency-peers.svg and latency-kills.svg: those that there are figures for."""
    begin(directory)
    steady = [each for each in results if each[0].kind == "steady"]
    _intervals([each for each in steady if each[0].mode in MODES], directory / "latency-intervals.svg")
    if any(cell.mode in PEERS for cell, _ in steady):
        _peers([each for each in steady if each[0].log == "kafka"], directory / "latency-peers.svg")
    _kills([each for each in results if each[0].kind == "kills"], directory / "latency-kills.svg")


def begin(directory: Path) -> None:
    """Make the directory, and the style of all pictures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "grete", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    mpl.rcParams |= {"axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False}
    directory.mkdir(exist_ok=True)


def figure_of(rows: int, columns: int) -> tuple[Any, list[Any]]:
    """Return a figure, and its panels in a flat list."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.0 * rows + 0.6), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save(figure: Any, panels: list[Any], path: Path) -> None:
    """Write a figure with the legend of its first panel, if that has one."""
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def _intervals(steady: Results, path: Path) -> None:
    """Draw p50 and p99 over the checkpoint interval, a panel a log."""
    logs = list(dict.fromkeys(cell.log for cell, _ in steady))
    if not logs:
        return
    figure, panels = figure_of(1, len(logs))
    for panel, log in zip(panels, logs, strict=True):
        rows = [(cell, result) for cell, result in steady if cell.log == log]
        for mode in dict.fromkeys(cell.mode for cell, _ in rows):
            for quantile, style in (("p50", "o-"), ("p99", "o--")):
                _line(panel, rows, mode, quantile, style=style, color=COLOURS[mode], label=f"{mode}, {quantile}")
        panel.set_title(f"{NAMES[log]}, two stages of two tasks", fontsize=9)
    save(figure, panels, path)


def _peers(steady: Results, path: Path) -> None:
    """Draw Grete's modes and its peers over the interval: p50 and p99, a panel each."""
    figure, panels = figure_of(1, 2)
    for panel, quantile in zip(panels, ("p50", "p99"), strict=True):
        for mode in dict.fromkeys(cell.mode for cell, _ in steady):
            if mode in PEERS:
                style = "o:" if PEERS[mode].guarantee == "at-least-once" else "s--"
                _line(panel, steady, mode, quantile, style=style, color=COLOURS[PEERS[mode].tool.name], label=mode)
            else:
                _line(panel, steady, mode, quantile, style="o-", color=COLOURS[mode], label=f"Grete, {mode}")
        panel.set_title(f"{quantile}, Kafka, two stages of two tasks", fontsize=9)
    save(figure, panels, path)


def _line(panel: Any, rows: Results, mode: str, quantile: str, *, style: str, color: str, label: str) -> None:
    """Draw one mode over the interval."""
    intervals = sorted({cell.checkpoint_interval_ms for cell, _ in rows})
    points = sorted((cell.checkpoint_interval_ms, result[quantile]) for cell, result in rows if cell.mode == mode)
    x, y = [interval for interval, _ in points], [latency for _, latency in points]
    if mode == "no guarantee":  # the same at each interval
        x, y = [intervals[0], intervals[-1]], y * 2
    panel.plot(x, y, style, color=color, markersize=3, label=label)
    panel.set(xscale="log", yscale="log", xlabel="checkpoint interval, ms", ylabel="latency of a document, ms")
    panel.set_xticks(intervals, [f"{interval:,}" for interval in intervals])


def _kills(results: Results, path: Path) -> None:
    """Draw the latency over time of each run with kills, the worst document of each tenth of a second."""
    logs = list(dict.fromkeys(cell.log for cell, _ in results))
    if not logs:
        return
    figure, panels = figure_of(len(logs), 1)
    for panel, log in zip(panels, logs, strict=True):
        for cell, result in (each for each in results if each[0].log == log):
            worst: dict[int, float] = {}
            for sent, latency in zip(result["sent_s"], result["latencies_ms"], strict=True):
                number = int(sent / BIN_S)
                worst[number] = max(latency, worst.get(number, 0.0))
            x = [number * BIN_S for number in worst]
            label = f"{cell.mode}, {cell.checkpoint_interval_ms:,} ms"
            panel.plot(x, list(worst.values()), color=COLOURS[cell.mode], linewidth=1, label=label)
            for kill in result["kills_s"]:
                panel.axvline(kill, color="#bb0000", linewidth=0.6, alpha=0.4)
        panel.set(yscale="log", xlabel="time of sending, s", ylabel="latency, ms")
        panel.set_title(f"{NAMES[log]}: a worker killed at each red line", fontsize=9)
    save(figure, panels, path)
