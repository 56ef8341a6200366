"""`grete up`: the workers of a job, until Ctrl-C."""

from contextlib import ExitStack
from functools import partial

from rich.console import Console

from framework.cli.feeding import Feeding, StopSignal, step, tell, warn
from framework.cli.job_target import JobTarget
from framework.cli.progress import Screen, counted
from framework.logs.patience import Patience
from framework.worker.local_job import LocalJob


def up(found: JobTarget, http: str | None = None) -> bool:
    """Keep the workers running until Ctrl-C; return whether an answer of the log is still to come.

    ``http``: the address at which metrics and health are served.
    """
    screen = Screen(Console())
    patience = Patience(say=screen.say)
    stop = StopSignal(partial(patience.end_within, found.settings.shutdown_timeout_ms / 1000))
    with (
        stop.excuses(),
        LocalJob(found.job, found.reference, found.job_directory, found.settings, patience=patience) as local,
        screen,
        ExitStack() as opened,
    ):
        screen.say(
            f"{found.job.name}: {counted(found.job.workers, 'worker')} in {found.job_directory.directory}; "
            "Ctrl-C stops them"
        )
        warn(found.job, screen)
        feeding = Feeding(local, None, [], follow=True)
        watch = None
        if http is not None:
            from framework.monitor.watching import watching

            watch = opened.enter_context(watching(found.job, found.settings, found.job_directory, http))
            screen.say(f"metrics and health: {watch.url}")
        while not stop.asked:
            step(local, feeding, screen)
            if watch is not None:
                watch.supervised(local)
        screen.say("stopping …")
        local.stop()
        tell(local, screen)
    local.require_stopped()
    return patience.waiting
