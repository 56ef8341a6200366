"""Latency in virtual time: the real cores, a clock that moves by measured costs, one core a task.

python -m benchmarks.speculation.virtual [load…]    writes a line of JSON for each cell
"""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count as numbers
from random import Random
from typing import Any

from benchmarks.speculation.costs import Costs, measured
from benchmarks.speculation.workload import LOADS, Load, count, parse
from framework.core.speculative.messages import ALL, OUTSIDE, Bound, Message, Passed, Place, Records, Revision
from framework.core.speculative.source import SpeculativeSource
from framework.core.speculative.task import Send, SpeculativeCore

PROGRESS_US = 5_000
WARM_UP_US = 500_000
HOP_US = 1_000  # from a send until the reader has it
APPEND_US = 1_500  # from an input decision until it is acknowledged


@dataclass(frozen=True)
class Cell:
    """One configuration. ``direct``: a tracker tells each stage its bound in two hops, like FlameStream's acker.

    ``prepared``: of a task that waits, the code that needs no state runs when a record comes; all of it, here.
    """

    load: str
    stages: int
    tasks: int
    delay_ms: int
    speculative: bool
    direct: bool = False
    prepared: bool = False
    seconds: float = 6.0


class Task:
    """A task and its queue: one thing at a time."""

    def __init__(self, run: "Run", stage: int, index: int) -> None:
        self.run, self.stage, self.index = run, stage, index
        cell = run.cell
        self.last = stage == cell.stages
        outputs = range(0 if self.last else cell.tasks)
        self.core = SpeculativeCore(f"{stage}-{index}", cell.tasks, outputs, {}, speculative=cell.speculative)
        self.core.start(0, None)
        self.readable: deque[tuple[int, Message]] = deque()
        self.busy = False
        self.busy_us = self.code_us = self.again_us = 0.0
        self.runs = self.messages = 0
        self.offsets = [0] * cell.tasks
        self.unprepared: list[tuple[Place, int]] = []
        self.ready: set[Place] = set()

    def arrive(self, channel: int, message: Message) -> None:
        """A message can be read."""
        self.readable.append((channel, message))
        self.wake()

    def bounded(self, bound: Bound) -> None:
        """The tracker tells a bound."""
        for channel in self.core.channels:
            channel.bound = max(channel.bound, bound)
        self.wake()

    def wake(self) -> None:
        """Take up work unless there is some."""
        if not self.busy:
            self.busy = True
            self.run.at(0, self.step)

    def step(self) -> None:
        """Do one thing: read first, then settle, then run, then prepare."""
        core, costs, sends = self.core, self.run.costs, list[Send]()
        self.busy = False
        cost = 0.0
        if self.readable:
            channel, message = self.readable.popleft()
            sends = core.message(channel, self.offsets[channel], message)
            self.offsets[channel] += 1
            self.messages += 1
            cost = costs.message_us
            if isinstance(message, Revision):
                if self.run.cell.prepared:
                    place = message.t, message.source, (channel, *message.path)
                    heappush(self.unprepared, (place, len(message.records)))
                self.run.outstanding(message.t, message.source, self.stage, -1)
        elif core.bound > core.settled and not self._blocked():
            units, sends = core.settle()
            cost = costs.settle_us * len(units)
            if self.last:
                self.run.released(self.index, units, cost)
        elif (unit := core.next()) is not None:
            view = core.view(unit)
            outputs = count(view, unit.records, self.stage, self.run.cell.tasks, last=self.last)
            again = unit.runs > 0
            sends = core.ran(unit, view, outputs)
            code = self.run.load.code_us * len(unit.records)
            if unit.place in self.ready:
                code = 0.0
            cost = costs.run_us + code + costs.record_us * len(unit.records)
            self.runs += 1
            self.code_us += code
            self.again_us += cost * again
        elif (records := self.prepare()) is not None:
            cost = self.run.load.code_us * records
        else:
            self.run.look()
            return
        self.busy = True
        self.busy_us += cost
        self.run.send(self.stage, self.index, sends, cost)
        self.run.at(cost, self.step)
        self.run.look()

    def prepare(self) -> int | None:
        """Return how many records the lowest bundle has whose code has not run, and note that it has."""
        while self.unprepared:
            place, records = heappop(self.unprepared)
            if place[:2] > self.core.settled:
                self.ready.add(place)
                return records
        return None

    def _blocked(self) -> bool:
        """Whether what is to run next is in the way of settling more."""
        lowest = self.core.next()
        return lowest is not None and (lowest.place[0], lowest.place[1] - 1) <= self.core.settled


class Run:
    """A cell in virtual time, in µs."""

    def __init__(self, cell: Cell, costs: Costs, seed: int = 1) -> None:
        self.cell, self.costs, self.load = cell, costs, LOADS[cell.load]
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = numbers()
        self.random = Random(seed)
        self.done: dict[tuple[int, int], float] = {}
        self.outside: list[tuple[int, Place, Records]] = []
        self.arrived: dict[tuple[int, int], float] = {}
        code = partial(parse, tasks=cell.tasks)
        self.sources = [
            SpeculativeSource(index, range(cell.tasks), code, speculative=cell.speculative)
            for index in range(cell.tasks)
        ]
        self.tasks = [Task(self, stage, index) for stage in range(1, cell.stages + 1) for index in range(cell.tasks)]
        self._flying: list[dict[Bound, int]] = [{} for _ in range(cell.stages + 1)]
        self._told: list[Bound] = [(-1, -1)] * (cell.stages + 1)
        self.sent = 0

    def at(self, delay: float, event: Callable[[], Any]) -> None:
        """Schedule."""
        heappush(self._events, (self.now + delay, next(self._order), event))

    def send(self, stage: int, producer: int, sends: list[Send], cost: float = 0.0) -> None:
        """Messages go out when the work that made them is over; one channel into stage 1 is slow."""
        for output, message in sends:
            delay = cost + HOP_US
            if stage == 0 and producer == 0 and output == 0:
                delay += self.cell.delay_ms * 1000
            if isinstance(message, Passed) and self.cell.direct:
                continue
            self.sent += 1
            if isinstance(message, Revision):
                self.outstanding(message.t, message.source, stage + 1, 1)
            target = self.tasks[stage * self.cell.tasks + output]
            self.at(delay, partial(target.arrive, producer, message))

    def released(self, sink: int, units: list[Any], cost: float) -> None:
        """Note when the last record of each document leaves."""
        for unit in units:
            if OUTSIDE in unit.outputs:
                self.done[unit.place[:2]] = self.now + cost
                self.outside.append((sink, unit.place, unit.outputs[OUTSIDE]))

    # --- the tracker ---

    def outstanding(self, t: int, source: int, stage: int, change: int) -> None:
        """Count what flies into a stage."""
        flying = self._flying[stage]
        flying[t, source] = flying.get((t, source), 0) + change
        if not flying[t, source]:
            del flying[t, source]

    def look(self) -> None:
        """Tell each stage what cannot come any more: nothing before it is on its way, or still to run."""
        if not self.cell.direct:
            return
        least = min(source.passed for source in self.sources)
        for stage in range(1, self.cell.stages + 1):
            least = min([least, *((t, source - 1) for t, source in self._flying[stage])])
            if least > self._told[stage]:
                self._told[stage] = least
                for task in self.tasks[(stage - 1) * self.cell.tasks : stage * self.cell.tasks]:
                    self.at(2 * HOP_US, partial(task.bounded, least))
            for task in self.tasks[(stage - 1) * self.cell.tasks : stage * self.cell.tasks]:
                unit = task.core.lowest()
                if unit is not None:
                    least = min(least, (unit.place[0], unit.place[1] - 1))

    # --- the run ---

    def run(self) -> dict[str, Any]:
        """Run it; return the figures."""
        cell, load = self.cell, self.load
        end = cell.seconds * 1e6
        documents = load.documents * (cell.tasks if load.records == 1 else 1)
        for index in range(cell.tasks):
            self.at(self.random.expovariate(documents / cell.tasks / 1e6), partial(self.row, index, documents, end))
            self.at(PROGRESS_US, partial(self.tick, index, end + 1e6))
        while self._events:
            self.now, _, event = heappop(self._events)
            event()
        return self.figures()

    def row(self, index: int, documents: int, end: float) -> None:
        """A document comes."""
        if self.now > end:
            return
        source = self.sources[index]
        decision, sends = source.take([load_document(self.load, self.random)], int(self.now))
        self.arrived[decision.times[0], index] = self.now
        self.send(0, index, sends)
        self.at(APPEND_US, partial(self.logged, index))
        self.at(self.random.expovariate(documents / self.cell.tasks / 1e6), partial(self.row, index, documents, end))

    def logged(self, index: int) -> None:
        """An input decision is valid."""
        self.send(0, index, self.sources[index].logged())
        self.look()

    def tick(self, index: int, end: float) -> None:
        """A source announces the time."""
        source = self.sources[index]
        source.lease = ALL
        self.send(0, index, source.advance(int(self.now)))
        self.look()
        if self.now < end:
            self.at(PROGRESS_US, partial(self.tick, index, end))

    def figures(self) -> dict[str, Any]:
        """Return latencies in ms, and CPU."""
        waits = sorted(
            (done - self.arrived[place]) / 1000 for place, done in self.done.items() if self.arrived[place] > WARM_UP_US
        )
        assert self.done.keys() == self.arrived.keys(), "a document was lost"
        documents = len(self.arrived)
        runs, units = sum(task.runs for task in self.tasks), sum(task.runs - task.core.ran_again for task in self.tasks)
        return vars(self.cell) | {
            "documents": documents,
            "p50": round(quantile(waits, 0.5), 2),
            "p90": round(quantile(waits, 0.9), 2),
            "p99": round(quantile(waits, 0.99), 2),
            "mean": round(sum(waits) / len(waits), 2),
            "cpu_ms": round(sum(task.busy_us for task in self.tasks) / documents / 1000, 3),
            "again_ms": round(sum(task.again_us for task in self.tasks) / documents / 1000, 3),
            "runs": round(runs / units, 3),
            "messages": round(self.sent / documents, 1),
            "busiest": round(max(task.busy_us for task in self.tasks) / self.now, 2),
        }


def load_document(load: Load, random: Random) -> bytes:
    """Return a document."""
    return load.document(random)


def quantile(values: list[float], share: float) -> float:
    """Return a quantile of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def cells(loads: list[str]) -> Iterator[Cell]:
    """Yield the grid: the order lets ways of one cell follow each other."""
    for load in loads:
        for stages in (1, 2, 4, 6):
            for tasks in (1, 2, 4):
                for delay in (5, 50):
                    for speculative in (False, True):
                        yield Cell(load, stages, tasks, delay, speculative)
                    if load == "costly":
                        yield Cell(load, stages, tasks, delay, False, prepared=True)
                        yield Cell(load, stages, tasks, delay, False, direct=True)
                        yield Cell(load, stages, tasks, delay, True, direct=True)


def main() -> None:
    """Run the grid."""
    both = {speculative: measured(speculative=speculative) for speculative in (False, True)}
    print(json.dumps({str(key): vars(value) for key, value in both.items()}), flush=True)
    for cell in cells(sys.argv[1:] or list(LOADS)):
        print(json.dumps(Run(cell, both[cell.speculative]).run()), flush=True)


if __name__ == "__main__":
    main()
