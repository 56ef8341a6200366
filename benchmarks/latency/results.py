"""The cells of the experiment and their figures, as they are run, kept in a file, and shown."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.latency.cell import Result
from benchmarks.latency.modes import MODES

KILLS_S = (4.0, 10.0, 16.0)
QUICK_KILLS_S = (2.0, 5.0, 8.0)


class Cell(NamedTuple):
    """One run. ``log``: embedded or kafka; ``kind``: which table it belongs to."""

    kind: str
    log: str
    mode: str
    checkpoint_interval_ms: int
    partitions: int
    seconds: float

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of benchmarks.latency.cell."""
        own = [
            f"mode={self.mode}",
            f"checkpoint_interval_ms={self.checkpoint_interval_ms}",
            f"partitions={self.partitions}",
        ]
        if self.kind in ("steady", "wide") and self.checkpoint_interval_ms == 1_000 and self.mode in MODES:
            own.append("idle_s=4")
        if self.kind == "kills":
            own.append("kills=" + ",".join(map(str, QUICK_KILLS_S if self.seconds < KILLS_S[-1] else KILLS_S)))
        return (*own, f"seconds={self.seconds}")


class Found(NamedTuple):
    """The results of a run: its machine, each cell's figures, and the cells left out, with the reasons."""

    where: str
    results: list[tuple[Cell, Result]]
    left_out: list[str]
    run: dict[str, Any] | None = None  # as benchmarks.results has it; None: kept by an earlier build

    def keep(self, path: Path) -> None:
        """Write it to a file."""
        path.write_text(json.dumps(self._asdict()))

    @classmethod
    def kept(cls, path: Path) -> "Found":
        """Read it from a file."""
        kept = json.loads(path.read_text())
        results = [(Cell(*cell), result) for cell, result in kept["results"]]
        return cls(kept["where"], results, kept.get("left_out", []), kept.get("run"))


Results = Sequence[tuple[Cell, Result]]
