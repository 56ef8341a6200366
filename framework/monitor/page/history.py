"""The last three hours of a job, in memory: points for charts, rates, restores, rollbacks.

Everything goes by the time of the views that are taken, so hours pass in a test as fast as it can make views.
"""

import math
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from grete.monitor.job_view import Incident, JobView
from grete.monitor.page.job_graph import JobGraph
from grete.protocol.report import TaskReport, TaskState

POINT_MS, KEPT_MS = 5_000, 3 * 3_600_000  # between two points; how long they are kept
SAMPLE_MS, RATE_MS = 1_000, 10_000  # between two samples of counters; the time over which a rate is taken
INCIDENTS_MAX = 200  # of rollbacks and restarts, for a chart of some hours
CAUSE_MS = 60_000  # how far back the cause of a rollback is looked for


class CounterKind(Enum):
    """The counters of a worker or a task."""

    BUSY = auto()  # seconds of a worker
    IN = auto()
    OUT = auto()
    RESTORED = auto()
    SENT = auto()  # to a topic
    READ = auto()  # of a partition of a topic from outside


class CounterOf(NamedTuple):
    """One count. ``of``: the place of a worker, or the name of a task."""

    what: CounterKind
    of: str
    topic: str = ""
    partition: int = -1


class ChartPoint(msgspec.Struct, frozen=True):
    """The worst of a stretch of time: how far the slowest task was behind the freshest one, in s; None: not known.

    ``age_s``: of the oldest checkpoint of a task. ``busy``: the share of the busiest task. ``rate``: input records that
    were committed in a second, the mean of the stretch.
    """

    at_ms: int
    gap_s: float | None
    slowest: str | None
    lag: int
    age_s: float | None = None
    busy: float | None = None
    rate: float | None = None


class TaskAges(msgspec.Struct, frozen=True):
    """The worst ages of a task in s, of one stretch of time after the other; None: not known."""

    task: str
    ages: list[float | None]


class Point(NamedTuple):
    """Ages of the last checkpoints at one moment, in s by the graph's tasks, nan: none yet; records that wait.

    ``rate``: input records committed in a second; ``busy``: the share of the busiest task. None: not known.
    """

    at_ms: int
    ages: "array[float]"
    lag: int
    rate: float | None = None
    busy: float | None = None

    def gap(self) -> tuple[float, float, int]:
        """Return the ages of the freshest and the slowest task in s, and the index of the slowest; nan, nan, -1."""
        known = [(age, index) for index, age in enumerate(self.ages) if not math.isnan(age)]
        if not known:
            return math.nan, math.nan, -1
        slowest, index = max(known)
        return min(known)[0], slowest, index


class LastSeen(NamedTuple):
    """The last report of a task, also when its worker is dead now."""

    at_ms: int
    task: TaskReport


class History:
    """Takes each view of a job. One thread takes, others may read: what they get is made at once or never changed."""

    def __init__(self, graph: JobGraph) -> None:
        self.seen: dict[str, LastSeen] = {}
        self.incidents: deque[Incident] = deque(maxlen=INCIDENTS_MAX)  # of tasks; workers' are in the view
        self._graph = graph
        self._points: deque[Point] = deque(maxlen=KEPT_MS // POINT_MS)
        self._totals: dict[CounterOf, float] = {}  # what has been counted, over the restarts of workers
        self._last: dict[CounterOf, float] = {}
        self._samples: deque[tuple[int, dict[CounterOf, float]]] = deque(maxlen=RATE_MS // SAMPLE_MS + 1)
        self._generations: dict[str, tuple[int, int]] = {}  # task → generation, and when it was seen first
        self._rollbacks: dict[str, int] = {}
        self._starts: dict[str, tuple[int, int | None]] = {}  # worker → starts, and since when it is not back
        self._sample_ms = self._point_ms = -math.inf

    def take(self, view: JobView) -> None:
        """Take a view; most of them change nothing but what was seen last."""
        for _, task in view.tasks():
            self.seen[task.name] = LastSeen(view.at_ms, task)
            self._watch(view, task)
        self._watch_workers(view)
        if view.at_ms - self._sample_ms >= SAMPLE_MS:
            self._sample_ms = view.at_ms
            self._sample(view)
        if view.at_ms - self._point_ms >= POINT_MS:
            self._point_ms = view.at_ms
            ages = array("f", [self._age_s(view, task.name) for task in self._graph.tasks])
            lag = sum(sum(view.lags(seen.task).values()) for seen in list(self.seen.values()))
            busy = max(view.busy.values(), default=None)
            self._points.append(Point(view.at_ms, ages, lag, self._read_rate(), busy))

    def rate(self, what: CounterKind, of: str) -> float | None:
        """Return the recent rate of a worker's or task's counter, by the second; None: not known yet."""
        return self._rate(CounterOf(what, of))

    def rate_of(self, task: str, counted: str, *, outgoing: bool) -> float | None:
        """Return the records a second that a task sends, or takes from outside; ``counted``: as an edge names it."""
        if outgoing:
            sent = self._rate(CounterOf(CounterKind.SENT, task, counted))
            nothing_yet = sent is None and self.rate(CounterKind.OUT, task) is not None
            return 0.0 if nothing_yet else sent
        return self._read_rate(task, counted)

    def _read_rate(self, task: str | None = None, topic: str = "") -> float | None:
        """Return the records a second that a task has committed of a topic from outside; None: of all tasks."""
        samples = list(self._samples)
        read = [key for key in (samples[-1][1] if samples else ()) if key.what is CounterKind.READ]
        own = [key for key in read if task is None or (key.of, key.topic) == (task, topic)]
        known = [rate for rate in map(self._rate, own) if rate is not None]
        return sum(known) if known else None

    def _rate(self, rated: CounterOf) -> float | None:
        samples = list(self._samples)
        if len(samples) < 2 or rated not in samples[-1][1]:
            return None
        (before_ms, before), (now_ms, now) = samples[0], samples[-1]
        return (now[rated] - before.get(rated, 0.0)) * 1_000 / (now_ms - before_ms)

    def points(self, count: int) -> list[ChartPoint]:
        """Return at most ``count`` points for a chart: the worst of each stretch of time, oldest first."""
        shown = []
        for part in _parts(list(self._points), count):
            gaps = [point.gap() for point in part]
            fresh, slow, index = max(gaps, key=lambda gap: -1.0 if math.isnan(gap[1]) else gap[1] - gap[0])
            known = index >= 0
            rates = [point.rate for point in part if point.rate is not None]
            shown.append(
                ChartPoint(
                    at_ms=part[-1].at_ms,
                    gap_s=round(slow - fresh, 2) if known else None,
                    slowest=self._graph.tasks[index].name if known else None,
                    lag=max(point.lag for point in part),
                    age_s=_worst(gap[1] for gap in gaps),
                    busy=max((point.busy for point in part if point.busy is not None), default=None),
                    rate=sum(rates) / len(rates) if rates else None,
                )
            )
        return shown

    def ages(self, stage: str, count: int) -> list[TaskAges]:
        """Return the ages of each task of a stage in ``count`` stretches of time."""
        parts = list(_parts(list(self._points), count))
        tasks = [(index, task) for index, task in enumerate(self._graph.tasks) if task.stage == stage]
        return [TaskAges(task.name, [_worst(point.ages[index] for point in part) for part in parts])
                for index, task in tasks]  # fmt: skip

    def _age_s(self, view: JobView, name: str) -> float:
        age_s = None if name not in self.seen else view.age_s(self.seen[name].task)
        return math.nan if age_s is None else age_s

    def _sample(self, view: JobView) -> None:
        known = set(self._last)
        for key, value in _counted(view):
            last = self._last.get(key)
            if last is None and key.what is CounterKind.SENT and CounterOf(CounterKind.OUT, key.of) in known:
                last = 0.0  # nothing was sent there before
            if last is not None:
                since = value - last if value >= last else value  # a new process counts from 0
                self._totals[key] = self._totals.get(key, 0.0) + since
            self._last[key] = value
        self._samples.append((view.at_ms, {key: self._totals.get(key, 0.0) for key in self._last}))

    def _watch(self, view: JobView, task: TaskReport) -> None:
        name, generation, rollbacks = task.name, task.generation, task.rollbacks
        known = self._generations.get(name)
        if known is None or known[0] != generation:
            self._generations[name] = generation, view.at_ms
        if rollbacks > self._rollbacks.get(name, 0):
            cause = self._cause(view, task.stage)
            text = f"{name} rolled back to checkpoint {task.checkpoint_id}: {cause}; nothing is lost"
            self.incidents.append(Incident(view.at_ms, text, "rollback"))
        self._rollbacks[name] = rollbacks

    def _cause(self, view: JobView, stage: str) -> str:
        """Return the cause of a task's rollback: a task before it that began again."""
        stages = self._graph.before(stage)
        began = [
            (at_ms, name, generation)
            for name, (generation, at_ms) in self._generations.items()
            if self.seen[name].task.stage in stages and view.at_ms - at_ms <= CAUSE_MS
        ]
        if not began:
            return "a task before it began again, and what it had sent since its last checkpoint does not count"
        _, name, generation = max(began)
        return f"{name} began again (generation {generation}), and what it had sent uncommitted does not count"

    def _watch_workers(self, view: JobView) -> None:
        for worker in view.workers:
            starts, away_ms = self._starts.get(worker.place, (worker.starts, None))
            back = bool(worker.tasks) and all(
                task.status in (TaskState.RUNNING, TaskState.FENCED) for task in worker.tasks.values()
            )
            if away_ms is None and (not worker.running or worker.starts > starts):
                away_ms = view.at_ms
            elif away_ms is not None and back and worker.running:
                restored = sum(task.measures.restored for task in worker.tasks.values())
                text = f"{worker.place} takes input again after {(view.at_ms - away_ms) / 1_000:.1f} s"
                text += f", {restored:,} entries of state restored" if restored else ", with the state that it has here"
                self.incidents.append(Incident(view.at_ms, text, "back"))
                away_ms = None
            self._starts[worker.place] = worker.starts, away_ms


def _counted(view: JobView) -> Iterator[tuple[CounterOf, float]]:
    """Yield the counters that a page shows as rates."""
    for worker in view.workers:
        if worker.measures is not None:
            yield CounterOf(CounterKind.BUSY, worker.place), worker.measures.busy_s
    for _, task in view.tasks():
        yield CounterOf(CounterKind.IN, task.name), task.measures.records_in
        yield CounterOf(CounterKind.OUT, task.name), task.measures.records_out
        yield CounterOf(CounterKind.RESTORED, task.name), task.restore.done
        for topic, count in task.measures.sent_to.items():
            yield CounterOf(CounterKind.SENT, task.name, topic), count
        for read in task.inputs:
            yield CounterOf(CounterKind.READ, task.name, read.topic, read.partition), read.offset


def _parts(points: Sequence[Point], count: int) -> Iterator[Sequence[Point]]:
    """Cut points into at most ``count`` parts, none of them empty."""
    parts = min(count, len(points))
    for number in range(parts):
        yield points[number * len(points) // parts : (number + 1) * len(points) // parts]


def _worst(ages: Iterator[float]) -> float | None:
    known = [age for age in ages if not math.isnan(age)]
    return round(max(known), 1) if known else None
