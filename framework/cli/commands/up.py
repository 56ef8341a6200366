"""`grete up`: the workers of a job, until Ctrl-C."""

from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from framework.cli.feeding import POLL_MS, Feeding, StopSignal, step, tell, tell_timers, warn
from framework.cli.job_target import JobTarget
from framework.cli.progress import Screen, counted
from framework.errors import Halted
from framework.logs.patience import Patience
from framework.worker.local_job import LocalJob

if TYPE_CHECKING:
    from framework.monitor.watching import JobWatch


def up(found: JobTarget, http: str | None = None, *, hide_values: bool = False, processes: int | None = None) -> bool:
    """Keep the workers running until Ctrl-C; return whether an answer of the log is still to come.

    ``http``: the address at which the page, metrics and health are served; ``hide_values``: without values.
    ``processes``: how many workers share the partitions, None: one for each.
    """
    screen = Screen(Console())
    patience = Patience(say=screen.say)
    stop = StopSignal(partial(patience.end_within, found.settings.shutdown_timeout_ms / 1000))
    with (
        stop.excuses(),
        LocalJob(
            found.job, found.reference, found.job_directory, found.settings, patience=patience, processes=processes
        ) as local,
        screen,
        ExitStack() as opened,
    ):
        screen.say(
            f"{found.job.name}: {_workers(found.job.workers, len(local.supervisor.workers))} in "
            f"{found.job_directory.directory}; "
            "Ctrl-C stops them"
        )
        warn(found.job, screen)
        feeding = Feeding(local, None, [], follow=True)
        watch = None
        if http is not None:
            from framework.monitor.watching import watching

            served = watching(found.job, found.settings, found.job_directory, http, hide_values=hide_values)
            watch = opened.enter_context(served)
            screen.say(f"page, metrics and health: {watch.url}")
        while not stop.asked:
            try:
                step(local, feeding, screen)
            except Halted as error:
                if watch is None:
                    raise
                _show_halted(local, watch, stop, screen, error)
                raise
            if watch is not None:
                watch.supervised(local)
        tell_timers(local, screen)
        screen.say("stopping …")
        local.stop()
        tell(local, screen)
    local.require_stopped()
    return patience.waiting


def _workers(partitions: int, count: int) -> str:
    """Return how many workers there are, in words, and how many partitions they share if they do."""
    workers = counted(count, "worker")
    return workers if count == partitions else f"{workers} for {counted(partitions, 'partition')}"


def _show_halted(local: LocalJob, watch: "JobWatch", stop: StopSignal, screen: Screen, error: Halted) -> None:
    """Stop the other workers, and serve what has happened until Ctrl-C: a person is needed, and looks there first."""
    screen.say(f"halted: {error}\nstopping the other workers …")
    watch.supervised(local)
    with suppress(Halted):  # another one: the first is what a person reads
        local.stop()
    screen.say(f"still served, until Ctrl-C: {watch.url}")
    while not stop.asked:
        local.supervisor.poll(POLL_MS)
        watch.supervised(local)
