"""A worker process: the tasks of its partitions, of all stages or of one, over one log. One thread, one loop."""

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from grete.api.jobs.job import Job
from grete.errors import ExitCode, LogAway, Refused, TransientError
from grete.execution.engine.driver import TaskDriver
from grete.execution.engine.joint_progress import JointProgress
from grete.execution.records.topic_names import TopicNames
from grete.job.directory import JobDirectory
from grete.job.key_check import JobKeys
from grete.logs.patience import Patience
from grete.ports import JobLog
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.worker.pipes.control_pipe import ControlPipe
from grete.worker.process.blocking import BlockingWatch
from grete.worker.process.hosted_task import SharedParts
from grete.worker.process.hosting import Hosting
from grete.worker.process.log_errors import explained
from grete.worker.process.measures import WorkerMeter
from grete.worker.process.reports import STATUS_MS, PublishedPositions, StatusReports
from grete.worker.process.status import ReadyLog, log_ready
from grete.worker.process.waiting import TaskWaits
from grete.worker.process.watchdog import Watchdog

LOOK_S = 0.5  # for an answer of the log that nothing depends on
QUIET_MS = 2_000  # between two rounds in which no task has anything to do, as far as each can tell

logger = logging.getLogger("grete")


def mono_ms() -> float:
    """Return the monotonic clock in ms."""
    return time.monotonic() * 1000


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """The log of a worker, its patience, and what checks the keys of external inputs there; None: nothing does.

    ``names`` knows the topics that records name.
    """

    log: JobLog
    patience: Patience = field(default_factory=Patience)
    keys: JobKeys | None = None
    names: TopicNames | None = None


class GracefulStop:
    """A stop (R6): asked for from anywhere, begun by the loop, and given up if it takes too long."""

    def __init__(self, patience: Patience, timeout_ms: int) -> None:
        """A stop ends the ``patience`` with the log, too, after ``timeout_ms``."""
        self.watched_by: Callable[[], None] = lambda: None  # called when it is asked for
        self.begun = self.gave_up = False
        self._patience, self._timeout_ms = patience, timeout_ms
        self._by_ms: float | None = None  # set by a signal handler, seen by the loop

    @property
    def asked(self) -> bool:
        """Whether the worker is to stop."""
        return self._by_ms is not None

    def ask(self) -> None:
        """Ask for it; safe to call from a signal handler, and again."""
        if self._by_ms is None:
            self.watched_by()
            self._by_ms = mono_ms() + self._timeout_ms
            self._patience.end_within(self._timeout_ms / 1000)

    def begins(self) -> bool:
        """Whether the tasks are to be told now: once."""
        begins, self.begun = self.asked and not self.begun, self.asked
        return begins

    @property
    def timed_out(self) -> bool:
        """Whether it takes too long."""
        return self._by_ms is not None and mono_ms() >= self._by_ms

    def give_up(self) -> ExitCode:
        """End a stop that has timed out: a crash is always safe (R6).

        Without a log nothing could be committed; with one, something has held the last commit up.
        """
        assert self._by_ms is not None, "only a stop that was asked for is given up"
        self.gave_up = True
        logger.warning("stop timed out", extra={"waited_ms": self._timeout_ms})
        began_s = (self._by_ms - self._timeout_ms) / 1000
        away = self._patience.silent or self._patience.unanswered_since(began_s)
        return ExitCode.DONE if away else ExitCode.FAILED


class Worker:
    """Hosts the tasks of ``partitions``. ``reports``: to its supervisor; ``control``: the orders of that one."""

    def __init__(
        self,
        job: Job,
        partitions: Sequence[int],
        opened: OpenedLog,
        job_directory: JobDirectory,
        settings: Settings,
        *,
        stage: str | None = None,
        fenced: Collection[str] = (),
    ) -> None:
        """Open the stores of the tasks.

        ``fenced``: the names of tasks that another process has, so that they stay away.
        Raises ConfigError for a partition or stage that the job has not.
        """
        self._log, self.patience, self._settings = opened.log, opened.patience, settings
        memory = RocksMemory(settings.rocksdb_bytes)
        joint = JointProgress(opened.log, mono_ms)
        shared = SharedParts(
            job, opened.log, job_directory, settings, memory, mono_ms, opened.keys, joint, opened.names
        )
        self.hosting = Hosting(partitions, shared, stage=stage, fenced=fenced)
        self._meter = WorkerMeter(memory, lambda: [task.directory for task in self.hosting.tasks.values()])
        stages = [graph.name for graph in job.stages]  # by ordinal: one that was dropped keeps its place
        waits = TaskWaits(stages, settings, self._look)
        self.reports = StatusReports(self.hosting, self._meter, waits, PublishedPositions(job), self.patience)
        self.show_life: Callable[[], None] = lambda: None  # to a supervisor, from another thread
        self.control: ControlPipe | None = None
        self.stopping = GracefulStop(self.patience, settings.shutdown_timeout_ms)
        self._ready = ReadyLog()
        self._turns = 0  # of the loop
        self._signalled = False  # a signal handler has asked for something since the loop last looked

    @property
    def drivers(self) -> list[TaskDriver]:
        """Those of the tasks that are here now: not of one that has ended alone."""
        return self.hosting.drivers

    @property
    def logs_for(self) -> TaskDriver | None:
        """The task that a log line is about now; None: all that are here."""
        return self.drivers[0] if len(self.hosting.tasks) == len(self.drivers) == 1 else self.hosting.loop.turn_of

    def watchdog(self) -> Watchdog:
        """Return the watchdog that ends the process, in a ``with`` block, if this worker hangs or stops too late."""
        settings = self._settings
        bounds_s = settings.liveness_timeout_ms / 1000, settings.shutdown_timeout_ms / 1000
        watchdog = Watchdog(*bounds_s, self._progress, self.show_life)
        self.stopping.watched_by = watchdog.stop
        return watchdog

    def blocking_watch(self) -> BlockingWatch:
        """Return the watch that logs, within a ``with`` block, that user code blocks."""
        return BlockingWatch(self._progress, self.reports)

    def _progress(self) -> tuple[int, object]:
        """Return a value that changes with each turn of the loop, each record and each timer; for another thread."""
        return self._turns, [driver.parts.runner.progress for driver in self.drivers]

    def run(self) -> ExitCode:
        """Run until stopped; return how it ended (C5)."""
        self.patience.meanwhile = self._status  # one that is gone ends the wait
        try:
            code = self._run()
        except LogAway:
            if not (self.stopping.asked and self.patience.ended):
                raise
            code = self.stopping.give_up()
        error = self.hosting.ends.halted or self.hosting.failed
        if error is not None:
            raise error
        return code

    def _run(self) -> ExitCode:
        self.hosting.begin()
        self._status(force=True)
        while self._goes_on():
            more = self._round()  # to do before anything else comes: a driver whose ``tick`` is False waits
            self._status()
            if self.stopping.begins():
                self.hosting.stop()
            if self.stopping.timed_out:
                return self.stopping.give_up()
            if not (more or self.hosting.loop.ended):
                self._wait()
        self._status(force=True)
        return ExitCode.DONE

    def _goes_on(self) -> bool:
        """Let tasks come, end and go; return whether there is more to come."""
        self._signalled = False
        order = None if self.control is None else self.control.order()
        if order is not None and not self.stopping.begun:
            self.hosting.assign(order.partitions, order.again)
        self.hosting.step(lambda: self._status(force=True))
        if self.hosting.moved:
            self.hosting.moved = False
            self._status(force=True)
        if self.hosting.ends.halted is not None:
            self.stop()
        return not self.hosting.over

    def _wait(self) -> None:
        """Wait until the log has something, a task is due, or somebody asks for something.

        Until then no task has a turn: turns for nothing, ten a second of each, were most of what idle tasks cost.
        """
        due_ms = [max(0.5, driver.due_in_ms()) for driver in self.hosting.loop.drivers]
        # Whether a task can go on when the log has answered: of aligned ones each commit waits for its frames.
        answers = self.hosting.changing or any(driver.mode.awaits_answers for driver in self.drivers)
        now = mono_ms()
        quiet_ms = STATUS_MS if self.stopping.asked or self.hosting.changing else QUIET_MS
        by = min(now + min(quiet_ms, self.hosting.due_in_ms, *due_ms), self.hosting.joint.due_ms or math.inf)
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
        return self._signalled or (self.control is not None and self.control.has_order)

    def _round(self) -> bool:
        """Give each task a turn; return whether there is more to do at once."""
        loop = self.hosting.loop
        try:
            more = loop.go_round()
        except Refused as error:
            raise explained(error, self.hosting.tasks.values()) from error
        except TransientError as error:
            silent = loop.turn_of is not None and self.reports.outage.explains(loop.turn_of)
            if type(error) is TransientError and silent:
                raise LogAway.from_plain(error.plain(), f"after an outage of the log: {error}") from error
            raise
        for driver in self._ready.due(self.drivers):
            loop.turn_of = driver
            log_ready(driver)
            loop.turn_of = None
        return more

    def _look(self, partition: TopicPartition) -> None:
        """Ask where a partition ends: a client that has stopped to fetch it learns that there is something."""
        with suppress(LogAway), self.patience.briefly(LOOK_S):
            self._log.bounds(partition)

    def stop(self) -> None:
        """Begin a graceful stop (R6); safe to call from a signal handler."""
        self._signalled = True
        self.stopping.ask()

    def drain(self) -> None:
        """Take the inputs from outside for ended (E7); safe to call from a signal handler."""
        self._signalled = True
        self.hosting.drain()

    def close(self) -> None:
        """Release stores and log."""
        self.hosting.close()
        self._log.close()

    def _status(self, *, force: bool = False) -> None:
        self._turns += 1
        self.reports.look(mono_ms(), force=force)
