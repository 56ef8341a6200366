"""The cells of the experiment, table by table, and about how long each takes."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.latency.cell import PEERS_WARM_S, RATE, WARM_S
from benchmarks.paper.techniques import MICRO_BATCHES, PEER_MODES, STRONG, TECHNIQUES
from benchmarks.peers.tools import PEERS

INTERVALS_MS = (1_000, 500, 100)  # the paper's
CURVE_MS, KILLS_MS = 500, 1_000  # the interval of the tables that have one
WIDTHS = (1, 2, 4, 8)  # tasks a stage
WIDE_RATE = 20.0  # documents a second that 8 × 8 tasks keep up with on two cores
LOADS = (25.0, 100.0, 150.0, 200.0, 400.0, 800.0)  # beside RATE, which the table of intervals has
PEER_LOADS = (100.0, 200.0, 400.0)
KILLS_S = (6.0, 14.0, 22.0)  # three, as in the paper's figure 9
KILLS_LENGTH_S = 30.0
CHECKPOINTS = 24  # of a cell: 20 are asked for, and a busy machine closes some late
LEAST_S = 8.0
KEYS = (10_000, 100_000, 1_000_000, 10_000_000)
REPEATS = 4  # of a cell whose percentiles are to be told from chance
ROUNDS, DOCUMENTS = 3, 100  # recoveries in each way, and what is committed before each
OUTSIDE_S = 5.0  # of a cell: start, silence at the end, recount
TASK_S = 0.5  # the same for each task of a stage
FILLED_A_S, FILL_S = 90_000, 20.0  # a size of the state: postings a second, and all else

REPEATED = ("at-least-once", "deterministic", "deterministic, sequenced")
WIDE = ("at-least-once", "exactly-once", "deterministic", "deterministic, sequenced")
HOSTED = ("at-least-once", "exactly-once", "deterministic, sequenced")  # on machines
CURVE = ("at-least-once", STRONG, MICRO_BATCHES, *WIDE[1:])
KILLED = ("at-most-once", "at-least-once", MICRO_BATCHES, *WIDE[1:])


class Cell(NamedTuple):
    """One run of the job.

    ``rate``: documents a second; ``kills``: s after the first document that counts; ``number``: of equal runs, from 1;
    ``machines``: a worker on each.
    """

    mode: str
    checkpoint_interval_ms: int
    tasks: int = 2
    rate: float = RATE
    kills: tuple[float, ...] = ()
    number: int = 0
    machines: bool = False

    @property
    def seconds(self) -> float:
        """Return for how long documents count."""
        return KILLS_LENGTH_S if self.kills else max(LEAST_S, CHECKPOINTS * self.checkpoint_interval_ms / 1000)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return those of benchmarks.paper.cell."""
        return (
            f"mode={self.mode}",
            f"checkpoint_interval_ms={self.checkpoint_interval_ms}",
            f"partitions={self.tasks}",
            f"rate={self.rate}",
            f"seconds={self.seconds}",
            f"kills={','.join(map(str, self.kills))}",
        )

    @property
    def module(self) -> str:
        """Return the module that runs it."""
        return "benchmarks.paper.cell"

    @property
    def name(self) -> str:
        """Return the name on the screen, and of its file."""
        kills = f", {len(self.kills)} kills" if self.kills else ""
        width, again = f"{self.tasks}×{self.tasks}", f", run {self.number}" if self.number else ""
        again += ", on machines" if self.machines else ""
        return f"{self.mode}, {self.checkpoint_interval_ms} ms, {width}, {self.rate:.0f} a second{kills}{again}"

    @property
    def takes_s(self) -> float:
        """Return about how long it takes."""
        warm = PEERS_WARM_S if self.mode in PEERS else WARM_S
        return warm + self.seconds + OUTSIDE_S + TASK_S * self.tasks


class Size(NamedTuple):
    """The recovery of an index of that many postings."""

    keys: int

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return those of benchmarks.paper.recovery."""
        return str(self.keys), str(ROUNDS), str(DOCUMENTS)

    @property
    def module(self) -> str:
        """Return the module that runs it."""
        return "benchmarks.paper.recovery"

    @property
    def name(self) -> str:
        """Return the name on the screen, and of its file."""
        return f"recovery of {self.keys} postings"

    @property
    def takes_s(self) -> float:
        """Return about how long it takes."""
        return FILL_S + self.keys / FILLED_A_S


def steady(peers: Sequence[str] = ()) -> Iterator[Cell]:
    """Yield the techniques by checkpoint interval, those without one once; behind them ``peers``, names of tools."""
    for interval in INTERVALS_MS:
        for mode, technique in TECHNIQUES.items():
            if interval == CURVE_MS or "checkpoint_interval_ms" not in technique.fixed:
                yield Cell(mode, interval)
        yield from (Cell(mode, interval) for mode in _modes_of(peers))


def _modes_of(peers: Sequence[str]) -> list[str]:
    return [mode for mode in PEER_MODES if PEERS[mode].tool.name in peers]


def kills() -> Iterator[Cell]:
    """Yield the runs in which workers are killed."""
    yield from (Cell(mode, KILLS_MS, kills=KILLS_S) for mode in KILLED)


def widths() -> Iterator[Cell]:
    """Yield the sizes of the graph, at one load."""
    yield from (Cell(mode, CURVE_MS, tasks, WIDE_RATE) for mode in WIDE for tasks in WIDTHS)


def machines() -> Iterator[Cell]:
    """Yield the same on machines: each has a worker, with a task of each stage."""
    yield from (cell._replace(machines=True) for cell in widths() if cell.mode in HOSTED)


def curve(peers: Sequence[str] = ()) -> Iterator[Cell]:
    """Yield each technique, and ``peers``, under rising load."""
    yield from (Cell(mode, CURVE_MS, rate=rate) for mode in CURVE for rate in LOADS)
    yield from (Cell(mode, CURVE_MS, rate=rate) for mode in _modes_of(peers) for rate in PEER_LOADS)


def repeats() -> Iterator[Cell]:
    """Yield equal runs of the techniques that send outputs at once, by turns."""
    yield from (Cell(mode, CURVE_MS, number=number) for number in range(1, REPEATS + 1) for mode in REPEATED)


# Parts that share no cell with another one: each can be measured alone.
PARTS: Mapping[str, Callable[[Sequence[str]], Iterator[Cell | Size]]] = {
    "steady": steady,
    "kills": lambda _: kills(),
    "sizes": lambda _: map(Size, KEYS),
    "widths": lambda _: widths(),
    "machines": lambda _: machines(),
    "repeats": lambda _: repeats(),
    "loads": curve,
}


def all_cells(peers: Sequence[str] = (), parts: Sequence[str] = tuple(PARTS)) -> list[Cell | Size]:
    """Return every cell, table by table; rising load may end a curve before its last cell."""
    return list(itertools.chain.from_iterable(PARTS[part](peers) for part in parts))


def beyond(cell: Cell | Size, found: Mapping[Cell | Size, dict[str, Any]]) -> bool:
    """Tell whether a technique was saturated, or failed, under a lower load already."""
    if not isinstance(cell, Cell) or cell not in set(curve([PEERS[mode].tool.name for mode in PEER_MODES])):
        return False
    lower = [found.get(cell._replace(rate=rate)) for rate in (RATE, *LOADS) if rate < cell.rate]
    return any(row is not None and (row.get("saturated") or "failed" in row) for row in lower)
