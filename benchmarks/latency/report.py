"""Tables of the experiment, in Markdown: the same on a terminal and in the docs."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.latency.cell import PEERS_WARM_S
from benchmarks.latency.peers.tools import PEERS
from benchmarks.latency.results import Results

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
QUANTILES = ("p50", "p75", "p95", "p99", "max")
PICTURE = "![p50 and p99 of Grete and of its peers by interval](images/latency-peers.svg)"  # it is drawn with them
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
        parts.append(PICTURE)
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


def write_document(path: Path, place: str, text: str) -> None:
    """Put the tables between their marks in a document. Raises SystemExit if it has none."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no line {BEGIN} with a line {END} behind it")
    path.write_text(f"{before}{BEGIN}\n{place}\n\n{text}\n{END}{after}")
