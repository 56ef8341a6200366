"""The reports of a worker to its supervisor: when one is due, and what it says."""

import logging
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from grete.api.jobs.job import Job
from grete.execution.engine.driver import TaskDriver
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition
from grete.protocol.report import Blocked, TaskReport, WorkerReport
from grete.worker.process.hosting import Hosting
from grete.worker.process.log_errors import Outage
from grete.worker.process.measures import WorkerMeter
from grete.worker.process.status import lag_from, task_report
from grete.worker.process.waiting import TaskWaits

STATUS_MS = 100  # between two statuses: what a person sees moves
STATUS_TASK_MS = 20  # the same for each task, where there are many: statuses are little of the work
STATUS_QUIET = 4  # times that, while no task does anything
STATUS_RESTORING_MS = 20  # a restore may be over soon, and a person watches its bar
LEVELS = {"late": logging.WARNING, "duplicate": logging.INFO, "failed": logging.WARNING}  # by reason
LOG_MS = 60_000  # between two lines about records dropped for the same reason

logger = logging.getLogger("grete")


class DroppedLog:
    """Logs how much was dropped as late (E5), as repeats or as failed: of each once a minute, while there is more."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[int, float]] = {}  # by reason: records as last logged, and when more may be

    def look(self, drivers: Sequence[TaskDriver], now_ms: float) -> None:
        """Log what is due."""
        for reason, level in LEVELS.items():
            dropped = {driver.wiring.name: driver.parts.runner.dropped[reason] for driver in drivers}
            said, due_ms = self._said.get(reason, (0, 0.0))
            if sum(dropped.values()) > said and now_ms >= due_ms:
                self._said[reason] = sum(dropped.values()), now_ms + LOG_MS
                extra: dict[str, object] = {reason: {name: count for name, count in dropped.items() if count}}
                if reason == "failed":
                    lasts = {driver.wiring.name: driver.parts.runner.last_failure for driver in drivers}
                    extra["last"] = {name: last for name, last in lasts.items() if last}
                logger.log(level, "%s records dropped", reason, extra=extra)


class PublishedPositions:
    """The committed positions of external inputs, for tools outside: ``publish`` takes those that have changed."""

    def __init__(self, job: Job) -> None:
        self.publish: Callable[[dict[TopicPartition, int]], None] = lambda _positions: None
        self._last: dict[TopicPartition, int] = {}
        # Of these each task has a position of its own, and a group has one.
        self._broadcast = {topic for topics in job.topology().broadcast.values() for topic in topics}

    def look(self, drivers: Sequence[TaskDriver]) -> None:
        """Publish, if something has changed: with the reports, which is seldom enough for any cluster."""
        positions = {
            partition: offset
            for driver in drivers
            for partition, offset in lag_from(driver).items()
            if partition.topic not in self._broadcast
        }
        if positions != self._last:
            self._last = positions
            self.publish(positions)


class StatusReports:
    """Reports of a worker, about ten times a second if they are few. Its owner assigns who takes them."""

    def __init__(
        self, hosting: Hosting, meter: WorkerMeter, waits: TaskWaits, positions: PublishedPositions, patience: Patience
    ) -> None:
        """``patience``: that of the log, which may be silent."""
        self.send: Callable[[WorkerReport], None] = lambda _report: None  # to the supervisor
        self.send_rest: Callable[[], None] = lambda: None  # of one that was too long to be sent at once
        self.tidy: Callable[[], None] = lambda: None  # with each report: what the process writes to
        self.last = WorkerReport(tasks=())  # that was made
        self.outage = Outage()
        self._made_ms = 0.0
        self._hosting, self._meter, self._waits, self._patience = hosting, meter, waits, patience
        self.positions, self._dropped = positions, DroppedLog()

    def look(self, now_ms: float, *, force: bool = False) -> None:
        """Report, if it is time, or in any case."""
        self.send_rest()
        drivers, loop = self._hosting.drivers, self._hosting.loop
        since_ms = now_ms - self._made_ms
        status_ms = max(STATUS_MS, STATUS_TASK_MS * len(self._hosting.tasks))
        status_ms *= 1 if loop.worked else STATUS_QUIET
        if not force and since_ms * STATUS_MS < STATUS_RESTORING_MS * status_ms:
            return
        if force or since_ms >= status_ms or (loop.worked and not all(driver.running for driver in drivers)):
            self._made_ms, loop.worked = now_ms, False
            if self._patience.silent:
                self._waits.forget()
                self.outage.note(drivers)
            known = (driver.parts.sends.pending.ahead_ms for driver in drivers)
            ahead_ms = min((each for each in known if each is not None), key=abs, default=None)
            measures = replace(self._meter.measure(now_ms, self._patience.trouble), ahead_ms=ahead_ms)
            self.last = WorkerReport(tasks=tuple(self._task_reports(now_ms)), measures=measures)
            self.send(self.last)
            self.positions.look(drivers)
            self.tidy()
            self._dropped.look(drivers, now_ms)

    def send_within(self, line: str, blocked: Blocked | None, *, goes_on: bool) -> None:
        """Report within a long turn: what was known, how busy, in which ``line``, or in what it is ``blocked``."""
        known, loop = self.last, self._hosting.loop
        if known.measures is not None:
            tasks = tuple(replace(task, busy_s=loop.busy_s(task.name)) for task in known.tasks)
            turn = loop.turn_of
            if blocked is not None and turn is not None:
                blocked = replace(blocked, task=turn.wiring.name)
            busy_s, hot = self._meter.busy_s, self._meter.keys.hottest()
            measures = replace(known.measures, busy_s=busy_s, in_line=line, blocked=blocked, goes_on=goes_on, hot=hot)
            self.send(WorkerReport(tasks=tasks, measures=measures))

    def sample(self) -> bool:
        """Sample the keys of the task whose turn it is; return whether there is one that processes records."""
        turn = self._hosting.loop.turn_of
        at = None if turn is None else turn.parts.runner.at_work
        if turn is None or at is None:
            return False
        self._meter.keys.take(turn.wiring.name, *at)
        return True

    def calls_are(self, blocked: Blocked | None) -> None:
        """Let the next reports say in what the loop of the calls is held up, None: it turns."""
        self._meter.calls_blocked = blocked

    def _task_reports(self, now_ms: float) -> Iterator[TaskReport]:
        """Yield the reports of the tasks that are here, and of those that have ended alone."""
        hosting, ends = self._hosting, self._hosting.ends
        drivers = {driver.wiring.name: driver for driver in hosting.drivers}
        waits = self._waits.told(hosting.drivers, now_ms)
        here = {name: task_report(driver) for name, driver in drivers.items()}
        for name, report in (here | {n: r for n, r in ends.reports.items() if n not in here}).items():
            driver = drivers.get(name)
            yield replace(
                report,
                waits=None if driver is None else waits.get(name),
                behind=None if driver is None else self._waits.behind(driver, now_ms),
                end=ends.last(name, driver),
                ends=ends.counts(name),
                life=hosting.tasks[name].life,
                busy_s=hosting.loop.busy_s(name),
            )
