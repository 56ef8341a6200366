"""A worker process in the role of standby: it keeps the stores of its partitions ready, and runs none of their tasks.

It reads the changelogs, and has no producer: it could not write to the log by mistake.
"""

import contextlib
import signal
from collections.abc import Callable, Sequence
from types import FrameType

from grete.api.jobs.job import Job
from grete.core.graph.task_topology import wire
from grete.core.lifecycle import StandbyPhase
from grete.core.members.assignor import CAUGHT_UP
from grete.errors import ConfigError, ExitCode, exit_code
from grete.execution.changelog.standby import StandbyTask
from grete.job.directory import JobDirectory
from grete.logs.address import open_reader
from grete.ports import LogReader
from grete.protocol.report import StandbyReport, StandbyState, StandbyTaskReport
from grete.settings import Settings
from grete.state.pins.pinning import know_dropped
from grete.state.pins.prepare import prepare_standby
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.worker.logs.end_log import end_report, log_end
from grete.worker.logs.own_lines import enable_own, own_logger
from grete.worker.pipes.signal_pipe import on_stop
from grete.worker.pipes.status_pipe import StatusPipe
from grete.worker.pipes.wakeup import WakeableSelector
from grete.worker.process.hosting import hosted_by
from grete.worker.process.task_store import open_task_store
from grete.worker.process.worker import mono_ms

IDLE_S = 0.1  # between two looks while nothing comes: what is committed is applied that much later
TURN_MS = 20.0  # of one standby, before the next one's
STATUS_MS = 500.0  # between two statuses

logger = own_logger()


class StandbyWorker:
    """Hosts the standbys of ``partitions``. ``report`` takes their status, twice a second."""

    def __init__(
        self,
        job: Job,
        partitions: Sequence[int],
        log: LogReader,
        job_directory: JobDirectory,
        settings: Settings,
        *,
        stage: str | None = None,
    ) -> None:
        """Open the stores. Raises ConfigError: the job has no such partition; TransientError: one is in use."""
        self.report: Callable[[StandbyReport], None] = lambda _report: None  # to the supervisor
        self.tidy: Callable[[], None] = lambda: None  # now and then
        self.open_ahead: Callable[[], None] = lambda: None  # what a worker needs that takes the place of these
        self.standbys: list[StandbyTask] = []
        self._restored = False
        self._moves = not settings.standby_replicas  # else it may be one for years
        self._promoted_soon = False
        self._stopping = False
        self._selector = WakeableSelector()  # for a wait that a signal ends
        self._reported_ms = 0.0
        self._told: set[str] = set()  # the standbys that were logged to have caught up
        memory = RocksMemory(settings.rocksdb_bytes)
        with contextlib.ExitStack() as opened:
            opened.callback(self._selector.close)
            opened.callback(log.close)
            for graph, partition in hosted_by(job, partitions, stage):
                wiring = wire(job.topology(), graph.ordinal, partition)
                store, taker = open_task_store(job, graph, partition, job_directory, log, memory)
                opened.callback(store.close)
                taker.take(settings.snapshot_url, store, job_directory.state(wiring.name))
                batch_bytes_max = settings.batch_bytes_max
                self.standbys.append(StandbyTask(wiring, log, store, batch_bytes_max=batch_bytes_max, mono_ms=mono_ms))
            self._opened = opened.pop_all()

    def run(self) -> ExitCode:
        """Follow the changelogs until stopped. Raises LogAway, TransientError (a disk is full)."""
        while not self._stopping:
            more = [self._turn(standby) for standby in self.standbys]
            if self._promoted_soon or (self._moves and self._caught_up):
                self._promoted_soon = self._moves = False
                self.open_ahead()
            self._status()
            if not any(more):
                self._selector.ready(IDLE_S)
        self._status(force=True)
        return ExitCode.DONE

    def _turn(self, standby: StandbyTask) -> bool:
        """Let a standby do what it can, for a while; return whether there is more to do at once."""
        ends = mono_ms() + TURN_MS
        while standby.tick():
            if mono_ms() > ends:
                return True
        return False

    @property
    def _caught_up(self) -> bool:
        return self._whole and sum(standby.progress.behind for standby in self.standbys) <= CAUGHT_UP

    @property
    def _whole(self) -> bool:
        return all(standby.progress.behind >= 0 for standby in self.standbys)

    def prepare(self) -> None:
        """Open ahead what a worker will need: it is to come soon; safe to call from a signal handler."""
        self._promoted_soon = True
        self._selector.wake()

    def stop(self) -> None:
        """End soon; safe to call from a signal handler. Nothing is lost by a kill either."""
        self._stopping = True
        self._selector.wake()

    def close(self) -> None:
        """Release stores and log."""
        self._opened.close()

    def _status(self, *, force: bool = False) -> None:
        now = mono_ms()
        restored, self._restored = self._restored, self._whole
        force |= self._restored and not restored  # a worker may wait for that to take its place
        if not force and now - self._reported_ms < STATUS_MS:
            return
        self._reported_ms = now
        self.tidy()
        self.report(StandbyReport(tasks=tuple(map(standby_report, self.standbys))))
        for standby in self.standbys:
            if standby.progress.caught_up and standby.wiring.name not in self._told:
                self._told.add(standby.wiring.name)
                progress = standby.progress
                logger.info(
                    "standby has caught up",
                    extra={
                        "task": standby.wiring.name,
                        "checkpoint_id": progress.checkpoint_id,
                        "restored": standby.counters["restored records"],
                    },
                )


def standby_report(standby: StandbyTask) -> StandbyTaskReport:
    """Return the report of the standby of one task."""
    progress, wiring = standby.progress, standby.wiring
    stopped, ready = standby.phase is StandbyPhase.STOPPED, progress.caught_up
    return StandbyTaskReport(
        stage=wiring.stage,
        partition=wiring.changelog.partition,
        status=StandbyState.STOPPED if stopped else StandbyState.STANDBY if ready else StandbyState.RESTORING,
        checkpoint_id=progress.checkpoint_id,
        position=progress.position,
        read=progress.read,
        end=progress.end,
        behind=progress.behind,
        trouble=standby.trouble,
        counters=dict(standby.counters),
    )


def open_standby(
    job: Job,
    partitions: Sequence[int],
    job_directory: JobDirectory,
    settings: Settings,
    *,
    stage: str | None = None,
    pipe: StatusPipe | None = None,
) -> StandbyWorker:
    """Return the standbys of these partitions, which report to ``pipe``. Raises ConfigError.

    A job's first start pins what they need to know, so there must have been one.
    """
    if not job_directory.address.on_kafka:
        raise ConfigError(
            "a standby keeps the state of a task on another machine, and only a job on Kafka has more than one: use "
            "--log kafka://host:port, or no standby"
        )
    hosted_by(job, partitions, stage)  # before the log is opened, as a worker does
    log = open_reader(job_directory.address, job_directory.directory / "log.db", group=job.name)
    try:
        know_dropped(job, log)
        hosted = hosted_by(job, partitions, stage)
        tasks = [wire(job.topology(), graph.ordinal, partition) for graph, partition in hosted]
        prepare_standby(job, log, job_directory, settings, tasks)
        worker = StandbyWorker(job, partitions, log, job_directory, settings, stage=stage)
    except BaseException:
        log.close()
        raise
    if pipe is not None:
        pipe.gone, worker.report = worker.stop, pipe.report
    return worker


def run_standby(make: Callable[[], StandbyWorker], pipe: StatusPipe | None = None) -> ExitCode:
    """Make and run standbys with signals, logs and exit codes."""
    worker: StandbyWorker | None = None
    try:
        worker = made = make()
        enable_own()

        def on_signal(_signum: int, _frame: FrameType | None) -> None:
            made.stop()

        on_stop(on_signal)
        signal.signal(signal.SIGUSR2, lambda _signum, _frame: made.prepare())  # from a supervisor
        logger.info("standby started", extra={"tasks": [standby.wiring.name for standby in made.standbys]})
        code = made.run()
        logger.info("worker done", extra={"code": code})
    except Exception as error:  # noqa: BLE001  # whatever it is, it decides how the process ends
        log_end(error)
        code = exit_code(error, worker=True)
        if pipe is not None:
            pipe.end(StandbyReport(tasks=(), end=end_report(error, ())))
    if worker is not None:
        worker.close()
        if code is ExitCode.DONE:
            worker.report(StandbyReport(tasks=()))  # its stores are free
    return code
