"""A worker process: the tasks of its partitions, of all stages or of one, over one log. One thread, one loop."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from grete.api.jobs.job import Job
from grete.errors import ExitCode, LogAway, Refused, TransientError
from grete.execution.engine.driver import TaskDriver
from grete.job.directory import JobDirectory
from grete.job.key_check import JobKeys
from grete.logs.patience import Patience
from grete.ports import Log
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskReport, WorkerReport
from grete.settings import Settings
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.worker.pipes.control_pipe import Order
from grete.worker.process.blocking import BlockingWatch
from grete.worker.process.dropped import DroppedLog
from grete.worker.process.hosted_task import Shared
from grete.worker.process.hosting import Hosting
from grete.worker.process.measures import WorkerMeter
from grete.worker.process.refused import explained
from grete.worker.process.status import lag_from, log_ready, task_report
from grete.worker.process.waiting import TaskWaits
from grete.worker.process.watchdog import Watchdog

STATUS_MS = 100  # between two statuses: what a person sees moves
STATUS_TASK_MS = 20  # the same for each task, where there are many: statuses are little of the work
STATUS_QUIET = 4  # times that, while no task does anything
LOOK_S = 0.5  # for an answer of the log that nothing depends on
QUIET_MS = 2_000  # between two rounds in which no task has anything to do, as far as each can tell
STATUS_RESTORING_MS = 20  # a restore may be over soon, and a person watches its bar


logger = logging.getLogger("grete")


def mono_ms() -> float:
    """Return the monotonic clock in ms."""
    return time.monotonic() * 1000


class Worker:
    """Hosts the tasks of ``partitions``. ``report`` takes their status, about ten times a second if they are few."""

    def __init__(
        self,
        job: Job,
        partitions: Sequence[int],
        log: Log,
        job_directory: JobDirectory,
        settings: Settings,
        *,
        stage: str | None = None,
        keys: JobKeys | None = None,
        fenced: Collection[str] = (),
    ) -> None:
        """Open the stores of the tasks; ``keys`` checks those of external inputs, None: nothing does.

        ``fenced``: the names of tasks that another process has, so that they stay away.
        Raises ConfigError for a partition or stage that the job has not.
        """
        self._log, self._settings = log, settings
        self.patience = Patience()  # that of the log: a stop shortens it
        self.report: Callable[[WorkerReport], None] = lambda _report: None  # to the supervisor
        self.report_rest: Callable[[], None] = lambda: None  # of a status that was too long to be reported at once
        self.publish: Callable[[dict[TopicPartition, int]], None] = lambda _positions: None  # to tools outside
        self.show_life: Callable[[], None] = lambda: None  # to a supervisor, from another thread
        self.stopping: Callable[[], None] = lambda: None  # called when it is asked to stop
        self.tidy: Callable[[], None] = lambda: None  # now and then: what the process writes to
        self.order: Callable[[], Order | None] = lambda: None  # what it is to host from now on, if that changes
        self._published: dict[TopicPartition, int] = {}
        self._broadcast = {topic for topics in job.topology().broadcast.values() for topic in topics}
        self._reported_ms = 0.0
        self._dropped = DroppedLog()
        self._told_ready: dict[str, int] = {}  # task → the generation that was last logged as ready
        self._away: dict[str, int] = {}  # task → its commits when the log was last silent: until the next, that is why
        self._stop_by: float | None = None  # set by a signal handler, seen by the loop
        self._stopping = False
        self._signalled = False  # a signal handler has asked for something since the loop last looked
        self._next_order: Order | None = None  # that has come while the loop waited
        self.gave_up = False  # a stop has timed out
        self._turns = 0  # of the loop
        self.reported = WorkerReport(tasks=())  # the last report
        memory = RocksMemory(settings.rocksdb_bytes)
        shared = Shared(job, log, job_directory, settings, memory, mono_ms, keys)
        self.hosting = Hosting(partitions, shared, stage=stage, fenced=fenced)
        self._loop, self._ends = self.hosting.loop, self.hosting.ends
        self._meter = WorkerMeter(memory, lambda: [task.directory for task in self.hosting.tasks.values()])
        stages = [graph.name for graph in job.stages]  # by ordinal: one that was dropped keeps its place
        self._waiting = TaskWaits(stages, settings, self._look)

    @property
    def drivers(self) -> list[TaskDriver]:
        """Those of the tasks that are here now: not of one that has ended alone."""
        return self.hosting.drivers

    @property
    def logs_for(self) -> TaskDriver | None:
        """The task that a log line is about now; None: all that are here."""
        return self.drivers[0] if len(self.hosting.tasks) == len(self.drivers) == 1 else self._loop.turn_of

    def watchdog(self) -> Watchdog:
        """Return the watchdog that ends the process, in a ``with`` block, if this worker hangs or stops too late."""
        settings = self._settings
        bounds_s = settings.liveness_timeout_ms / 1000, settings.shutdown_timeout_ms / 1000
        watchdog = Watchdog(*bounds_s, self._progress, self.show_life)
        self.stopping = watchdog.stop
        return watchdog

    def blocking_watch(self) -> BlockingWatch:
        """Return the watch that logs, within a ``with`` block, that user code blocks."""
        return BlockingWatch(self._progress, self._report_within)

    def _progress(self) -> tuple[int, object]:
        """Return a value that changes with each turn of the loop, each record and each timer; for another thread."""
        return self._turns, [driver.parts.runner.progress for driver in self.drivers]

    def _report_within(self, line: str) -> None:
        """Report within a long turn, in which only records are done: what was known, how busy, in which ``line``."""
        known = self.reported
        if known.measures is not None:
            tasks = tuple(replace(task, busy_s=self._loop.busy_s(task.name)) for task in known.tasks)
            measures = replace(known.measures, busy_s=self._meter.busy_s, in_line=line)
            self.report(WorkerReport(tasks=tasks, measures=measures))

    def run(self) -> ExitCode:
        """Run until stopped; return how it ended (C5)."""
        self.patience.meanwhile = self._status  # one that is gone ends the wait
        try:
            code = self._run()
        except LogAway:
            if self._stop_by is None or not self.patience.ended:
                raise
            code = self._give_up()
        error = self._ends.halted or self.hosting.failed
        if error is not None:
            raise error
        return code

    def _run(self) -> ExitCode:
        self.hosting.begin()
        self._status(force=True)
        while self._goes_on():
            more = self._round()  # to do before anything else comes: a driver whose ``tick`` is False waits
            self._status()
            if self._stop_by is not None and self._stop_timed_out(self._stop_by):
                return self._give_up()
            if not (more or self._loop.ended):
                self._wait()
        self._status(force=True)
        return ExitCode.DONE

    def _goes_on(self) -> bool:
        """Let tasks come, end and go; return whether there is more to come."""
        self._signalled = False
        order, self._next_order = self._next_order or self.order(), None
        if not self._stopping and order is not None:
            self.hosting.assign(order.partitions, order.again)
        self.hosting.step(lambda: self._status(force=True))
        if self.hosting.moved:
            self.hosting.moved = False
            self._status(force=True)
        if self._ends.halted is not None:
            self.stop()
        return not self.hosting.over

    def _wait(self) -> None:
        """Wait until the log has something, a task is due, or somebody asks for something.

        Until then no task has a turn: turns for nothing, ten a second of each, were most of what idle tasks cost.
        """
        due_ms = [max(0.5, driver.due_in_ms()) for driver in self._loop.drivers]
        now, answers = mono_ms(), self._awaits_answers()
        quiet_ms = QUIET_MS if self._stop_by is None and not self.hosting.changing else STATUS_MS
        by = now + min(quiet_ms, self.hosting.due_in_ms, *due_ms)
        came = False
        while not (came or self._is_asked() or now >= by):
            begun = now
            came = self._log.wait(min(STATUS_MS, by - now), answers=answers)
            now = mono_ms()
            self._meter.waited_ms += now - begun
            if not came:
                self._status()

    def _is_asked(self) -> bool:
        """Whether a signal, or the supervisor, asks for something."""
        if self._next_order is None:
            self._next_order = self.order()
        return self._signalled or self._next_order is not None

    def _round(self) -> bool:
        """Give each task a turn; return whether there is more to do at once."""
        try:
            more = self._loop.go_round()
        except Refused as error:
            raise explained(error, self.hosting.tasks.values()) from error
        except TransientError as error:
            failed = self._loop.turn_of
            silent = failed is not None and self._away.get(failed.wiring.name) == failed.counters["commits"]
            if type(error) is TransientError and silent:
                raise LogAway.from_plain(error.plain(), f"after an outage of the log: {error}") from error
            raise
        for driver in self.drivers:
            if driver.running and self._told_ready.get(driver.wiring.name) != driver.core.generation:
                self._told_ready[driver.wiring.name] = driver.core.generation
                self._loop.turn_of = driver
                log_ready(driver)
                self._loop.turn_of = None
        return more

    def _look(self, partition: TopicPartition) -> None:
        """Ask where a partition ends: a client that has stopped to fetch it learns that there is something."""
        with suppress(LogAway), self.patience.briefly(LOOK_S):
            self._log.bounds(partition)

    def _awaits_answers(self) -> bool:
        """Whether a task can go on when the log has answered: of aligned ones each commit waits for its frames."""
        return self.hosting.changing or any(driver.mode.awaits_answers for driver in self.drivers)

    def stop(self) -> None:
        """Begin a graceful stop (R6); safe to call from a signal handler."""
        self._signalled = True
        if self._stop_by is None:
            self.stopping()
            self._stop_by = mono_ms() + self._settings.shutdown_timeout_ms
            self.patience.end_within(self._settings.shutdown_timeout_ms / 1000)

    def drain(self) -> None:
        """Take the inputs from outside for ended (E7); safe to call from a signal handler."""
        self._signalled = True
        self.hosting.drain()

    def _stop_timed_out(self, stop_by: float) -> bool:
        if not self._stopping:
            self._stopping = True
            self.hosting.stop()
        return mono_ms() >= stop_by

    def _give_up(self) -> ExitCode:
        """End a stop that has timed out: a crash is always safe (R6).

        Without a log nothing could be committed; with one, something has held the last commit up.
        """
        assert self._stop_by is not None
        self.gave_up = True
        waited_ms = self._settings.shutdown_timeout_ms
        logger.warning("stop timed out", extra={"waited_ms": waited_ms})
        away = self.patience.silent or self.patience.unanswered_since((self._stop_by - waited_ms) / 1000)
        return ExitCode.DONE if away else ExitCode.FAILED

    def close(self) -> None:
        """Release stores and log."""
        self.hosting.close()
        self._log.close()

    def _status(self, *, force: bool = False) -> None:
        self._turns += 1
        self.report_rest()
        now = mono_ms()
        since = now - self._reported_ms
        status_ms = max(STATUS_MS, STATUS_TASK_MS * len(self.hosting.tasks))
        status_ms *= 1 if self._loop.worked else STATUS_QUIET
        if not force and since * STATUS_MS < STATUS_RESTORING_MS * status_ms:
            return
        if force or since >= status_ms or (self._loop.worked and not all(driver.running for driver in self.drivers)):
            self._reported_ms, self._loop.worked = now, False
            if self.patience.silent:
                self._waiting.forget()
                self._away = {driver.wiring.name: driver.counters["commits"] for driver in self.drivers}
            self.reported = WorkerReport(
                tasks=tuple(self._task_reports(now)), measures=self._meter.measure(now, self.patience.trouble)
            )
            self.report(self.reported)
            self._publish()
            self.tidy()
            self._dropped.look(self.drivers, now)

    def _task_reports(self, now: float) -> Iterator[TaskReport]:
        """Yield the reports of the tasks that are here, and of those that have ended alone."""
        waits = self._waiting.told(self.drivers, now)
        here = {driver.wiring.name: task_report(driver) for driver in self.drivers}
        drivers = {driver.wiring.name: driver for driver in self.drivers}
        for name, report in (here | {n: r for n, r in self._ends.reports.items() if n not in here}).items():
            driver = drivers.get(name)
            yield replace(
                report,
                waits=None if driver is None else waits.get(name),
                behind=None if driver is None else self._waiting.behind(driver, now),
                end=self._ends.last(name, driver),
                ends=self._ends.counts(name),
                life=self.hosting.tasks[name].life,
                busy_s=self._loop.busy_s(name),
            )

    def _publish(self) -> None:
        """Publish how far external inputs are committed, where that has changed: seldom enough for any cluster."""
        positions = {
            partition: offset
            for driver in self.drivers
            for partition, offset in lag_from(driver).items()
            if partition.topic not in self._broadcast  # each task has a position of its own: a group has one
        }
        if positions != self._published:
            self._published = positions
            self.publish(positions)
