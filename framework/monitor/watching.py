"""Watches a job that this process runs, and serves what it sees: `--http` of `grete up` and `grete worker`."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from framework.api.job import Job
from framework.errors import ExitCode
from framework.job.directory import JobDirectory
from framework.logs.patience import Patience
from framework.monitor.busy import Busy
from framework.monitor.health import LIVE_SHARE
from framework.monitor.input_ends import InputEnds
from framework.monitor.job_view import JobView, WorkerView
from framework.monitor.server import Monitor, serving
from framework.ports import Log
from framework.settings import Settings
from framework.worker.ends import REASONS, free_bytes
from framework.worker.local_job import LocalJob
from framework.worker.worker import Worker

_ASKS_S = 2.0  # for an answer of the log
_DISK_S = 2.0  # between two looks at the disk


class JobWatch:
    """Shows a job on a monitor: call ``supervised`` with each turn, or let it watch one worker."""

    def __init__(
        self, job: Job, settings: Settings, monitor: Monitor, ends: InputEnds, directory: Path, url: str
    ) -> None:
        self.url = url
        self._job, self._settings = job.name, settings
        self._monitor, self._ends = monitor, ends
        self._busy = Busy()
        self._directory, self._free, self._looked_s = directory, 0, -_DISK_S

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
                    halted=worker.exit_code in (ExitCode.HALTED, ExitCode.FAILED),
                    last_end=worker.last_end,
                    ends={reason: worker.ends[reason] for reason in REASONS},
                    tasks=worker.status,
                )
                for worker in local.supervisor.workers.values()
            ),
            local.patience.trouble,
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

    def _show(self, workers: tuple[WorkerView, ...], log_trouble: str | None = None) -> None:
        self._monitor.pulse.turned()
        now_s = time.monotonic()
        self._busy.look(workers, now_s)
        if now_s - self._looked_s >= _DISK_S:
            self._free, self._looked_s = free_bytes(self._directory), now_s
        view = JobView(
            job=self._job,
            at_ms=time.time_ns() // 1_000_000,
            workers=workers,
            checkpoint_interval_ms=self._settings.checkpoint_interval_ms,
            ends=self._ends.ends,
            busy=self._busy.shares,
            log_trouble=log_trouble,
            disk_free_bytes=self._free,
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
        yield JobWatch(job, settings, monitor, ends, job_directory.directory, url)


def _silent(_line: str) -> None:
    """Say nothing: the workers say that the log does not answer."""
