"""A job drawn from a seed, in two builds, and what must come of its input by plain Python.

Each record is a key and an amount. Stages send the amount on under another key; where it ends depends on the record
alone, so the recount needs no order. Every stage counts and adds up by its own key, and the last one sends each step.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from grete import Files, Input, Job, Output, Record, Store, Task, Topic, json, utf8
from grete.api.tasks.mode import Mode

KEYS = 12  # of the input; of a later stage, some more or less
HOT = 0.4  # of the records have the first key


class Amount(msgspec.Struct, array_like=True, frozen=True):
    """A record of the job, keyed. ``number``: of the input, so that no two are equal."""

    number: int
    amount: int


class Total(msgspec.Struct, array_like=True, frozen=True):
    """The number of a key's records, and their sum. ``last``: the number of the last one."""

    count: int = 0
    amount: int = 0
    last: int = -1


class Shape(NamedTuple):
    """The shape of a job, as the seed has drawn it."""

    seed: int
    stages: int
    partitions: int
    deterministic: bool
    files: bool  # the last stage writes an archive, too
    checkpoint_interval_ms: int

    @property
    def text(self) -> str:
        """One line about it."""
        mode = "deterministic" if self.deterministic else "aligned"
        files = ", files" if self.files else ""
        every = f"a checkpoint every {self.checkpoint_interval_ms} ms"
        return f"{self.stages} stages of {self.partitions} partitions, {mode}{files}, {every}"


def drawn(seed: int) -> Shape:
    """Return the shape of a seed's job."""
    r = random.Random(f"job {seed}")
    deterministic = r.random() < 0.4
    files = not deterministic and r.random() < 0.5
    return Shape(seed, r.choice((1, 2, 2, 3)), r.choice((1, 2, 3)), deterministic, files, r.choice((50, 200, 800)))


class _Add(Task):
    """Counts and adds up by key. ``level``: of the stage."""

    level = 0
    totals: Store[str, Total]

    def add(self, record: Record[str, Amount]) -> Total:
        """Take a record; return what its key has now."""
        before = self.totals.get(record.key, Total())
        after = Total(before.count + 1, before.amount + record.value.amount, record.value.number)
        self.totals.put(record.key, after)
        return after


class _Pass(_Add):
    """Sends each record on under another key."""

    out: Output[str, Amount]

    def process(self, record: Record[str, Amount]) -> None:
        self.add(record)
        self.out.send(key_at(self.level + 1, record.key, record.value.amount), record.value)


class _Show(_Add):
    """Sends each step."""

    out: Output[str, Total]

    def process(self, record: Record[str, Amount]) -> None:
        self.out.send(record.key, self.add(record))


class _Archive(_Show):
    """Writes each step to files, too."""

    archive: Output[None, Any]

    def process(self, record: Record[str, Amount]) -> None:
        after = self.add(record)
        self.out.send(record.key, after)
        self.archive.send(None, [record.key, after.count, after.amount, after.last])


class _Again(_Add):
    """The stage that the second build has added: it counts the input from its beginning."""

    def process(self, record: Record[str, Amount]) -> None:
        self.add(record)


def key_at(level: int, key: str, amount: int) -> str:
    """Return the key under which a record reaches a stage."""
    return f"{'abcd'[level]}{(amount * 7 + int(key[1:])) % (KEYS + level)}"


def job_of(seed: int, build: int, directory: Path) -> Job:
    """Return a build of the job: 1, or 2 with one more stage; files go below ``directory``."""
    shape = drawn(seed)
    topics = [Topic("orders", key=utf8, value=json(Amount))]
    topics += [Topic(f"passed-{level}", key=utf8, value=json(Amount)) for level in range(1, shape.stages)]
    shown = Topic("shown", key=utf8, value=json(Total))
    stages: list[type[Task]] = []
    for level, topic in enumerate(topics):
        body: dict[str, Any] = {"level": level, "records": Input(topic), "totals": _totals(f"totals-{level}")}
        last = level == shape.stages - 1
        body["out"] = Output(shown if last else topics[level + 1])
        if last and shape.files:
            body["archive"] = Output(Files(str(directory / "archive"), json(list[Any])))
        base = _Pass if not last else _Archive if shape.files else _Show
        stages.append(type(f"Stage{level}", (base,), body))
    if build == 2:
        stages.append(type("Again", (_Again,), {"records": Input(topics[0]), "totals": _totals("again")}))
    mode: Mode = "deterministic" if shape.deterministic else "aligned"
    return Job("drawn", stages=stages, partitions=shape.partitions, mode=mode)


def _totals(name: str) -> Store[str, Total]:
    return Store(name, key=utf8, value=json(Total))


class Recount:
    """The expected results of records, without the framework."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.amounts: list[dict[str, Counter[int]]] = [defaultdict(Counter) for _ in range(shape.stages)]

    def feed(self, records: Iterable[tuple[str, Amount]]) -> None:
        """Take records of the input."""
        for key, value in records:
            for level in range(self._shape.stages):
                key = key if level == 0 else key_at(level, key, value.amount)  # noqa: PLW2901  # the next stage's
                self.amounts[level][key][value.amount] += 1

    def totals(self, level: int) -> dict[str, tuple[int, int]]:
        """Return key → (records, sum) of a stage."""
        found = self.amounts[level].items()
        return {key: (each.total(), sum(a * n for a, n in each.items())) for key, each in found}

    def check_steps(self, what: str, steps: Mapping[str, Sequence[Total]]) -> list[str]:
        """Return the faults of the steps that the last stage has shown: each record once, by its key."""
        wrong, last = [], self.amounts[-1]
        for key in sorted({*steps, *last}):
            found = sorted(steps.get(key, ()), key=lambda step: step.count)
            sums = [0, *(step.amount for step in found)]
            if [step.count for step in found] != list(range(1, last[key].total() + 1)):
                wrong.append(f"{what}: {key} has steps {[step.count for step in found]}, not 1 to {last[key].total()}")
            elif Counter(after - before for before, after in pairwise(sums)) != last[key]:
                wrong.append(f"{what}: {key} has other amounts than its input")
            elif len({step.last for step in found}) != len(found):
                wrong.append(f"{what}: {key} has a record twice")
        return wrong
