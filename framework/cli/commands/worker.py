"""`grete worker`: one worker process."""

import logging
from collections.abc import Sequence
from pathlib import Path

from grete.cli.job_target import JobTarget, target
from grete.cli.settings_file import settings_of
from grete.errors import ConfigError, ExitCode
from grete.logs.address import LogAddress
from grete.worker.hosting import stages_of
from grete.worker.lifetime import log_refused, run_worker
from grete.worker.opening import open_worker
from grete.worker.status_pipe import StatusPipe
from grete.worker.watchdog import exits_after
from grete.worker.worker import Worker
from grete.worker.worker_log import configure_logs

logger = logging.getLogger("grete")


def _stand_by(
    found: JobTarget, partition: int, stage: str | None, http: str | None, pipe: StatusPipe | None
) -> ExitCode:
    from grete.worker.standby_worker import StandbyWorker, open_standby, run_standby

    if http is not None:
        log_refused(ConfigError("--standby with --http: a standby has no page; its log lines say how far it is"))
        return ExitCode.USAGE

    def make() -> StandbyWorker:
        return open_standby(found.job, [partition], found.job_directory, found.settings, stage=stage, pipe=pipe)

    return run_standby(make, pipe)


def work(
    reference: str,
    partition: int,
    *,
    directory: Path | None,
    state: Path | None,
    stage: str | None,
    http: str | None = None,
    hide_values: bool = False,
    address: LogAddress,
    sets: Sequence[str] | None,
    settings_file: Path | None = None,
    status_fd: int,
    standby: bool = False,
) -> ExitCode:
    """Run a worker, or a standby, to its end; return its exit code (C5)."""
    whose = configure_logs([partition], partition)
    try:
        settings = settings_of(sets, settings_file)
        with exits_after(settings.liveness_timeout_ms / 1000):
            found = target(reference, directory, address, settings, state)
        stages_of(found.job, partition, stage)
        pipe = None if status_fd < 0 else StatusPipe(status_fd)
    except ConfigError as error:
        log_refused(error)
        return ExitCode.USAGE
    whose.job = found.job.name
    if standby:
        return _stand_by(found, partition, stage, http, pipe)

    def make() -> Worker:
        return open_worker(found.job, [partition], found.job_directory, found.settings, stage=stage, pipe=pipe)

    if http is None:
        return run_worker(make, whose, pipe)
    from grete.monitor.watching import watching

    try:
        tasks = [f"{each.name}-{partition}" for each in stages_of(found.job, partition, stage)]
        served = watching(found.job, found.settings, found.job_directory, http, tasks=tasks, hide_values=hide_values)
        with served as watch:
            logger.info("page, metrics and health", extra={"url": watch.url})
            return run_worker(lambda: watch.of(make(), partition), whose, pipe)
    except ConfigError as error:
        log_refused(error)
        return ExitCode.USAGE
