"""Tables of the experiment: all figures on a terminal, p50 and p99 by interval in the docs."""

from collections.abc import Sequence
from typing import Any

from benchmarks import results as kept
from benchmarks.latency.cell import PEERS_WARM_S, Result
from benchmarks.latency.results import Cell, Results
from benchmarks.peers.tools import PEERS

QUANTILES = ("p50", "p75", "p95", "p99", "max")
NAMES = {"kafka": "Kafka", "embedded": "the embedded log"}


def figures(results: Results, left_out: Sequence[str] = ()) -> str:
    """Return all tables that there are figures for, the peers' settings, and what was left out."""
    parts = []
    for log in dict.fromkeys(cell.log for cell, _ in results):
        for partitions in (2, 4):
            rows = [
                (cell, result)
                for cell, result in results
                if cell.log == log and cell.partitions == partitions and cell.kind != "kills"
            ]
            if rows:
                parts.append(_steady(f"{NAMES[log]}, two stages of {partitions} tasks", rows))
    kills = [(cell, result) for cell, result in results if cell.kind == "kills"]
    if kills:
        parts.append(_kills(kills))
    tools = dict.fromkeys(PEERS[cell.mode].tool for cell, _ in results if cell.mode in PEERS)
    if tools:
        settings = (f"- {tool.name} {tool.version}: {tool.settings}" for tool in tools)
        parts.append("\n".join((f"**The peers**, {PEERS_WARM_S:.0f} s warm before they count:", "", *settings)))
    if left_out:
        parts.append("\n".join(("**Left out**:", "", *(f"- {' '.join(why.split())}" for why in left_out))))
    return "\n\n".join(parts)


def _steady(title: str, rows: Results) -> str:
    lines = [
        f"**On {title}**: latency of a document in ms, CPU of the workers, and of an idle task in % of a core.",
        "",
        f"| mode | interval ms | {' | '.join(QUANTILES)} | p50 / interval | CPU ms a document | idle % a task |",
        f"|---|{'---:|' * 9}",
    ]
    for cell, result in rows:
        checkpoints = cell.mode != "no guarantee"
        interval = f"{cell.checkpoint_interval_ms:,}" if checkpoints else "–"
        quantiles = " | ".join(f"{result[name]:,.1f}" for name in QUANTILES)
        share = f"{result['p50'] / cell.checkpoint_interval_ms:.2f}" if checkpoints else "–"
        cpu = f"{1000 * result['cpu_s'] / result['documents']:.1f}"
        idle = "" if result["idle_percent"] is None else f"{result['idle_percent']:.1f}"
        lines.append(f"| {cell.mode} | {interval} | {quantiles} | {share} | {cpu} | {idle} |")
    return "\n".join(lines)


def _kills(rows: Results) -> str:
    caption = (
        "**Three workers killed by SIGKILL**, two stages of two tasks: from the kill to the first output of the killed "
        "worker's partition for a document sent after the kill."
    )
    lines = [
        caption,
        "",
        "| log | mode | interval ms | first new output after s | p50 ms | p99 ms | max ms | records again |",
        "|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for cell, result in rows:
        back = ", ".join(f"{seconds:.2f}" for seconds in result["first_output_s"])
        quantiles = " | ".join(f"{result[name]:,.0f}" for name in ("p50", "p99", "max"))
        row = (
            NAMES[cell.log],
            cell.mode,
            f"{cell.checkpoint_interval_ms:,}",
            back,
            quantiles,
            f"{result['repeated']:,}",
        )
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def as_cells(results: Results) -> list[dict[str, Any]]:
    """Return every figure of a run, a flat row for each cell."""
    return [_kept(cell, result) for cell, result in results]


def _kept(cell: Cell, result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": cell.kind,
        "log": NAMES[cell.log],
        "tasks": cell.partitions,
        "mode": cell.mode,
        "checkpoint_interval_ms": cell.checkpoint_interval_ms,
    }
    row |= {f"{name}_ms": round(result[name], 1) for name in QUANTILES}
    if cell.kind == "kills":
        again = [round(seconds, 2) for seconds in result["first_output_s"]]
        return row | {"first_output_s": again, "records_again": result["repeated"]}
    idle = result["idle_percent"]
    cpu = round(1000 * result["cpu_s"] / result["documents"], 1)
    return row | {"cpu_ms_a_document": cpu, "idle_percent_a_task": None if idle is None else round(idle, 1)}


def tables(cells: Sequence[dict[str, Any]]) -> list[kept.Table]:
    """Return the tables of the page: a row for each mode, p50 and p99 by interval; then the kills."""
    steady = [cell for cell in cells if cell["kind"] != "kills"]
    places = dict.fromkeys((cell["log"], cell["tasks"]) for cell in steady)
    made = [_by_interval(*place, [c for c in steady if (c["log"], c["tasks"]) == place]) for place in places]
    kills = [cell for cell in cells if cell["kind"] == "kills"]
    return [*made, *([_after_kills(kills)] if kills else [])]


def _by_interval(log: str, tasks: int, cells: Sequence[dict[str, Any]]) -> kept.Table:
    intervals = sorted({cell["checkpoint_interval_ms"] for cell in cells})
    by = {(cell["mode"], cell["checkpoint_interval_ms"]): cell for cell in cells}
    last = max(intervals, key=lambda interval: sum(cell["checkpoint_interval_ms"] == interval for cell in cells))
    rows: list[list[kept.Cell]] = []
    for mode in dict.fromkeys(cell["mode"] for cell in cells):
        found = [by.get((mode, interval)) for interval in intervals]
        at = by.get((mode, last), {})
        both = [None if each is None else f"{each['p50_ms']:,.1f} / {each['p99_ms']:,.1f}" for each in found]
        rows.append([mode, *both, at.get("cpu_ms_a_document"), at.get("idle_percent_a_task")])
    title = f"On {log}, two stages of {tasks} tasks: p50 / p99 in ms by checkpoint interval"
    columns = ["mode", *(f"{interval:,} ms" for interval in intervals)]
    return kept.Table(title, [*columns, f"CPU ms a document at {last:,} ms", "idle % of a core a task"], rows)


def _after_kills(cells: Sequence[dict[str, Any]]) -> kept.Table:
    rows: list[list[kept.Cell]] = [
        [
            cell["log"],
            cell["mode"],
            ", ".join(f"{seconds:.2f}" for seconds in cell["first_output_s"]),
            f"{cell['p50_ms']:,.0f} / {cell['p99_ms']:,.0f}",
            cell["records_again"],
        ]
        for cell in cells
    ]
    title = "Three workers killed by SIGKILL, interval 1,000 ms: first output of the killed worker's partition"
    return kept.Table(title, ["log", "mode", "after s", "p50 / p99 ms", "records again"], rows)


def peers_table(results: Results) -> list[kept.Table]:
    """Return the peers that took part, with the settings that were chosen for them."""
    tools = dict.fromkeys(PEERS[cell.mode].tool for cell, _ in results if cell.mode in PEERS)
    title = f"The peers, {PEERS_WARM_S:.0f} s warm before they count"
    rows: list[list[kept.Cell]] = [[tool.name, tool.version, tool.settings] for tool in tools]
    return [kept.Table(title, ["tool", "version", "settings"], rows)] if rows else []
