"""`grete worker`: one worker process."""

import logging
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from grete.cli.job_command import job_command
from grete.cli.job_target import JobTarget, NamedJob
from grete.cli.options import PageOptions, path_named
from grete.errors import ConfigError, ExitCode
from grete.worker.life.lifetime import end_at_once, log_refused, run_worker
from grete.worker.life.opening import open_worker
from grete.worker.logs.worker_log import configure_logs
from grete.worker.pipes.signal_pipe import on_stop
from grete.worker.pipes.status_pipe import StatusPipe
from grete.worker.process.hosting import stages_of
from grete.worker.process.watchdog import exits_after
from grete.worker.process.worker import Worker

logger = logging.getLogger("grete")
app = typer.Typer(add_completion=False)


def _stand_by(
    found: JobTarget, partition: int, stage: str | None, http: str | None, pipe: StatusPipe | None
) -> ExitCode:
    from grete.worker.life.standby_worker import StandbyWorker, open_standby, run_standby

    if http is not None:
        log_refused(ConfigError("--standby with --http: a standby has no page; its log lines say how far it is"))
        return ExitCode.USAGE

    def make() -> StandbyWorker:
        return open_standby(found.job, [partition], found.job_directory, found.settings, stage=stage, pipe=pipe)

    return run_standby(make, pipe)


def _stop_starting(_signum: int, _frame: FrameType | None) -> NoReturn:
    """End at once, until the worker has handlers of its own: it may wait for a broker that is away."""
    logger.info("stopped while it was starting: it had processed nothing")
    end_at_once(ExitCode.DONE)


@job_command(app)
def worker(
    named: NamedJob,
    *,
    partition: Annotated[int, typer.Option(help="The partition whose tasks the worker runs.")],
    state_directory: Annotated[
        Path | None,
        typer.Option(
            parser=path_named, metavar="PATH", help="Keep the local stores in this directory instead of the job's."
        ),
    ] = None,
    stage: Annotated[str | None, typer.Option(help="Run the task of this stage only.")] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Run no task: keep the partition's state ready on this machine.")
    ] = False,
    page: PageOptions = PageOptions(),
    status_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> ExitCode:
    """Run one worker. Exit codes: 0 done, 1 failed, 2 usage, 3 fenced, 4 halted."""
    whose = configure_logs([partition], partition)
    if status_fd is None:  # a supervisor knows what a signal does to a worker that starts
        on_stop(_stop_starting)
    try:
        page.check()
        settings = named.settings
        with exits_after(settings.liveness_timeout_ms / 1000):
            found = named.target(state_directory)
        stages_of(found.job, partition, stage)
        pipe = None if status_fd is None else StatusPipe(status_fd)
    except ConfigError as error:
        log_refused(error)
        return ExitCode.USAGE
    whose.job = found.job.name
    if standby:
        return _stand_by(found, partition, stage, page.http, pipe)

    def make() -> Worker:
        return open_worker(found.job, [partition], found.job_directory, found.settings, stage=stage, pipe=pipe)

    if page.http is None:
        return run_worker(make, whose, pipe)
    from grete.monitor.watching import watching

    try:
        tasks = [f"{each.name}-{partition}" for each in stages_of(found.job, partition, stage)]
        where, name = found.job_directory, found.reference
        served = watching(found.job, found.settings, where, page.http, reference=name, tasks=tasks)
        with served as watch:
            logger.info("page, metrics and health", extra={"url": watch.url})
            return run_worker(lambda: watch.of(make(), partition), whose, pipe)
    except ConfigError as error:
        log_refused(error)
        return ExitCode.USAGE
