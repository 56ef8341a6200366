"""Watches a job that this process runs, and serves what it sees: `--http` of `grete up` and `grete worker`."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from framework.api.job import Job
from framework.errors import ExitCode
from framework.job.directory import JobDirectory
from framework.logs.patience import Patience
from framework.monitor.health import LIVE_SHARE
from framework.monitor.input_ends import InputEnds
from framework.monitor.job_view import JobView, WorkerView
from framework.monitor.server import Monitor, serving
from framework.ports import Log
from framework.settings import Settings
from framework.worker.local_job import LocalJob
from framework.worker.worker import Worker

_ASKS_S = 2.0  # for an answer of the log


class JobWatch:
    """Shows a job on a monitor: call ``supervised`` with each turn, or let it watch one worker."""

    def __init__(self, job: Job, settings: Settings, monitor: Monitor, ends: InputEnds, url: str) -> None:
        self.url = url
        self._job, self._settings = job.name, settings
        self._monitor, self._ends = monitor, ends

    def supervised(self, local: LocalJob) -> None:
        """Show what all workers of a supervisor have said."""
        self._show(
            tuple(
                WorkerView(
                    partition=worker.partition,
                    running=worker.running,
                    pid=None if worker.process is None else worker.process.pid,
                    starts=worker.starts,
                    crashes=worker.crashes,
                    fenced=worker.exit_code == ExitCode.FENCED,
                    tasks=worker.status,
                )
                for worker in local.supervisor.workers.values()
            )
        )

    def of(self, worker: Worker, partition: int) -> Worker:
        """Show what a worker of this process says, from now on; return it."""
        report, show_life = worker.report, worker.show_life

        def told(status: dict[str, Any]) -> None:
            report(status)
            self._show((WorkerView(partition=partition, running=True, pid=os.getpid(), tasks=status),))

        def lives() -> None:  # the watchdog says so, also within a turn of many slow records
            show_life()
            self._monitor.pulse.turned()

        worker.report, worker.show_life = told, lives
        return worker

    def _show(self, workers: tuple[WorkerView, ...]) -> None:
        self._monitor.pulse.turned()
        view = JobView(
            job=self._job,
            at_ms=time.time_ns() // 1_000_000,
            workers=workers,
            checkpoint_interval_ms=self._settings.checkpoint_interval_ms,
            ends=self._ends.ends,
        )
        self._monitor.show(view)


@contextmanager
def watching(job: Job, settings: Settings, job_directory: JobDirectory, address: str) -> Iterator[JobWatch]:
    """Serve at ``address`` within the block. Raises ConfigError if that cannot be had."""

    def open_log() -> Log:
        return job_directory.open_log(create=False, patience=Patience(_ASKS_S, _ASKS_S, say=_silent))

    with ExitStack() as opened:
        monitor = Monitor(LIVE_SHARE * settings.liveness_timeout_ms / 1_000)
        url = opened.enter_context(serving(monitor, address))
        ends = opened.enter_context(InputEnds(job, open_log))
        yield JobWatch(job, settings, monitor, ends, url)


def _silent(_line: str) -> None:
    """Say nothing: the workers say that the log does not answer."""
