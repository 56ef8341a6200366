"""The record of a cell: one flat row of plain values; a file each, so that a run can be cut and go on."""

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.latency.cell import Result
from benchmarks.paper.plan import Cell, Size
from benchmarks.paper.techniques import GUARANTEES

Row = dict[str, Any]
Rows = Mapping[Cell | Size, Row]
BIN_S = 0.25  # of a latency over time: its worst document
SATURATED_MS = 500.0  # by which the last quarter of the documents waits longer than the first: it falls behind


def row_of(cell: Cell | Size, result: Result) -> Row:
    """Return the row of a run's figures."""
    if isinstance(cell, Size):
        figures = ("same_host_s", "other_host_s", "state_mib", "load", "rounds")
        return {"keys": cell.keys} | {figure: round(result[figure], 2) for figure in figures}
    latencies = result["latencies_ms"]
    quarter = len(latencies) // 4
    drift = statistics.median(latencies[-quarter:]) - statistics.median(latencies[:quarter])
    row: Row = {
        "mode": cell.mode,
        "guarantee": GUARANTEES[cell.mode],
        "checkpoint_interval_ms": cell.checkpoint_interval_ms,
        "tasks": cell.tasks,
        "rate": cell.rate,
        "seconds": cell.seconds,
        "checkpoints": result["checkpoints"],
        "load": round(result["load"], 1),
        **{f"{name}_ms": round(result[name], 1) for name in ("p50", "p75", "p95", "p99", "max")},
        "saturated": not cell.kills and drift > SATURATED_MS,
        "index": result["index"],
    }
    if cell.machines:
        row["machines"] = True
    if cell.number:
        row["number"] = cell.number
    if not cell.kills:  # the CPU time of the killed went with them
        row["cpu_ms_a_document"] = round(1000 * result["cpu_s"] / result["documents"], 1)
    else:
        row["kills_s"] = result["kills_s"]
        row["first_output_s"] = [round(seconds, 2) for seconds in result["first_output_s"]]
        row["documents_lost"] = round(cell.seconds * cell.rate) - len(latencies)
        row["records_again"], row["records_lost"] = result["repeated"], result["lost"]
        row["worst_ms"] = _worst(result["sent_s"], latencies)
    return row


def _worst(sent_s: Iterable[float], latencies: Iterable[float]) -> list[list[float]]:
    """Return [time of sending in s, the worst latency in ms] for each bin that has a document."""
    worst: dict[int, float] = {}
    for sent, latency in zip(sent_s, latencies, strict=True):
        number = int(sent / BIN_S)
        worst[number] = max(latency, worst.get(number, 0.0))
    return [[number * BIN_S, round(latency, 1)] for number, latency in sorted(worst.items())]


class Kept:
    """The rows that are there, in a directory; another commit or log has another one."""

    def __init__(self, directory: Path, cells: Iterable[Cell | Size]) -> None:
        """Read what there is."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        paths = {cell: self._path(cell) for cell in cells}
        self.rows: dict[Cell | Size, Row] = {
            cell: json.loads(path.read_text()) for cell, path in paths.items() if path.exists()
        }

    def keep(self, cell: Cell | Size, row: Row) -> None:
        """Keep a row, as soon as its run has ended."""
        self.rows[cell] = row
        draft = self._path(cell).with_suffix(".draft")
        draft.write_text(json.dumps(row))
        draft.rename(self._path(cell))

    def _path(self, cell: Cell | Size) -> Path:
        return self._directory / f"{cell.name.replace(', ', '-').replace(' ', '_')}.json"
