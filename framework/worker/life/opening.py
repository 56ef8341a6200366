"""Opens a worker: its log, what it must know of its job, then its tasks. All but the tasks can be done ahead."""

import logging
import time
from collections.abc import Collection, Sequence

from grete.api.jobs.job import Job
from grete.core.graph.task_topology import wire
from grete.errors import FrameworkError
from grete.execution.deterministic.determinism_lint import check_worker
from grete.execution.limits import FETCH_PARTS, progress_pace_ms
from grete.job.directory import JobDirectory
from grete.job.key_check import JobKeys
from grete.job.named_topics import JobTopicNames
from grete.logs.patience import Patience
from grete.ports import Reads
from grete.settings import Settings
from grete.state.pins.graph_pinning import check_graph
from grete.state.pins.pinning import know_dropped
from grete.state.pins.prepare import prepare
from grete.worker.pipes.status_pipe import StatusPipe
from grete.worker.process.hosting import hosted_by
from grete.worker.process.worker import OpenedLog, Worker

KEPT_S = 60.0  # what was done ahead: by then somebody may have changed what it has found

logger = logging.getLogger("grete")


def open_log(
    job: Job,
    partitions: Sequence[int],
    job_directory: JobDirectory,
    settings: Settings,
    *,
    stage: str | None = None,
    pipe: StatusPipe | None = None,
    connect_seconds: float | None = None,
) -> OpenedLog:
    """Open the log for a worker of these partitions, and prepare the job there. Raises ConfigError, LogAway."""
    check_worker(job)
    patience = Patience(settings.send_timeout_ms / 1000, connect_seconds)
    if pipe is not None:
        patience.meanwhile = lambda: None if pipe.is_read else patience.end_within(0)
    tasks_here = hosted_by(job, partitions, stage)  # before the log is opened: a wrong number waits for no broker
    log = job_directory.open_log(group=job.name, patience=patience, reads=reads_of(job, len(tasks_here), settings))
    try:
        know_dropped(job, log)
        hosted = hosted_by(job, partitions, stage)
        job.count_broadcast(log.partitions)
        tasks = [wire(job.topology(), graph.ordinal, partition) for graph, partition in hosted]
        metadata = prepare(job, log, job_directory, settings, tasks=tasks)
        names = JobTopicNames(job, log, metadata, job_directory)
        return OpenedLog(log, patience, JobKeys(job, metadata, job_directory, settings), names)
    except BaseException:
        log.close()
        raise


def reads_of(job: Job, tasks: int, settings: Settings) -> Reads:
    """Return the delay of reads, for ``tasks``: none where outputs are seen at once, or in half a pace."""
    if "deterministic" in job.modes:
        partitions = max(stage.partitions for stage in job.topology().stages)
        return Reads(tasks, progress_pace_ms(partitions, settings.progress_interval_ms) // 2)
    waits = settings.processing_guarantee == "exactly-once"
    return Reads(tasks, settings.checkpoint_interval_ms // FETCH_PARTS if waits else 0)


def open_worker(
    job: Job,
    partitions: Sequence[int],
    job_directory: JobDirectory,
    settings: Settings,
    *,
    stage: str | None = None,
    pipe: StatusPipe | None = None,
    connect_seconds: float | None = None,
    fenced: Collection[str] = (),
    opened: OpenedLog | None = None,
) -> Worker:
    """Return a worker over its log and stores that reports to ``pipe``. Raises ConfigError.

    It waits for brokers as long as for what it has sent; ``connect_seconds``: at its start. ``fenced``: the names of
    tasks that another process has. ``opened``: its log, if that was opened ahead for the same partitions.
    """
    opened = opened or open_log(
        job, partitions, job_directory, settings, stage=stage, pipe=pipe, connect_seconds=connect_seconds
    )
    log = opened.log
    worker = Worker(job, partitions, opened, job_directory, settings, stage=stage, fenced=fenced)
    worker.hosting.arriving = lambda wiring: check_graph(job, log, [wiring])
    positions = worker.reports.positions
    positions.publish = getattr(log, "publish", positions.publish)  # the embedded log has no lag tools
    if pipe is not None:
        pipe.gone, worker.show_life = worker.stop, pipe.show_life
        worker.reports.send, worker.reports.send_rest = pipe.report, pipe.go_on
    return worker


class OpenedAhead:
    """Resources that a standby opens for its successor while another process still runs the partition."""

    def __init__(self) -> None:
        self._opened: tuple[tuple[int, ...], float, OpenedLog] | None = None

    def open(
        self, job: Job, partitions: tuple[int, ...], job_directory: JobDirectory, settings: Settings, pipe: StatusPipe
    ) -> None:
        """Open the log now, unless that was just done. What fails is left to the worker, which says why."""
        if self._opened is not None and time.monotonic() - self._opened[1] < KEPT_S / 2:
            return
        self.close()
        waits_s = settings.send_timeout_ms / 1000
        try:
            opened = open_log(job, partitions, job_directory, settings, pipe=pipe, connect_seconds=waits_s)
        except FrameworkError as error:
            logger.warning("nothing was opened ahead", extra={"error": str(error)})
            return
        self._opened = partitions, time.monotonic(), opened

    def take(self, partitions: tuple[int, ...]) -> OpenedLog | None:
        """Return the log for a worker of these partitions, None: it opens its own."""
        if self._opened is not None:
            (whose, since_s, opened), self._opened = self._opened, None
            if whose == partitions and time.monotonic() - since_s < KEPT_S:
                return opened
            opened.log.close()
        return None

    def close(self) -> None:
        """Let go of what was not taken."""
        self.take(())
