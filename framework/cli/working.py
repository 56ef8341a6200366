"""`grete worker`: one worker process."""

import os
from collections.abc import Sequence
from pathlib import Path

from framework.cli.target import target
from framework.errors import ConfigError
from framework.logs.open import LogAddress
from framework.runtime.place import prepare
from framework.runtime.worker import Worker, configure_logs, report_to, run_worker


def work(
    reference: str,
    partition: int,
    *,
    directory: Path | None,
    state: Path | None,
    stage: str | None,
    address: LogAddress,
    sets: Sequence[str] | None,
    status_fd: int,
) -> int:
    """Run a worker to its end; return its exit code (C5)."""
    configure_logs()

    def make() -> Worker:
        found = target(reference, directory, address, sets, state)
        log = found.place.open_log(group=found.job.name)
        prepare(found.job, log, found.place, found.settings)
        worker = Worker(found.job, partition, log, found.place, found.settings, stage=stage)
        if status_fd >= 0:
            worker.report = report_to(_checked(status_fd), worker.stop)
        return worker

    return run_worker(make)


def _checked(handle: int) -> int:
    try:
        os.fstat(handle)
    except OSError as error:
        raise ConfigError(f"--status-fd {handle}: {error.strerror}: it is for supervisors only") from error
    return handle
