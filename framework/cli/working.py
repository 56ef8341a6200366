"""`grete worker`: one worker process."""

import os
from collections.abc import Sequence
from pathlib import Path

from framework.cli.target import target
from framework.errors import ConfigError
from framework.runtime.place import create_topics, pin_guarantee
from framework.runtime.worker import Worker, configure_logs, report_to, run_worker


def work(
    reference: str,
    partition: int,
    *,
    directory: Path | None,
    state: Path | None,
    stage: str | None,
    log_name: str,
    sets: Sequence[str] | None,
    status_fd: int,
) -> int:
    """Run a worker to its end; return its exit code (C5)."""
    configure_logs()

    def make() -> Worker:
        found = target(reference, directory, log_name, sets, state)
        log = found.place.open_log()
        create_topics(found.job, log)
        pin_guarantee(log, found.settings)
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
