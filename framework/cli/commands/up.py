"""`grete up`: the workers of a job, until Ctrl-C."""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from grete.cli.feeding import POLL_MS, Feeding, step, tell, tell_timers, warn
from grete.cli.job_command import job_command
from grete.cli.job_target import JobTarget, NamedJob
from grete.cli.options import PageOptions, Processes, StartTimes
from grete.cli.output.patient_output import end_unanswered, standard_output
from grete.cli.output.progress import Screen, counted
from grete.cli.starts import starts_of
from grete.cli.stop_signal import UNANSWERED, ShareSignals, StopSignal
from grete.core.supervision.assignment import Assignment, HostedShare
from grete.errors import Halted, LogAway
from grete.logs.patience import Patience
from grete.worker.members.job_member import JobMember
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs

if TYPE_CHECKING:
    from grete.monitor.job_views import JobViews
    from grete.monitor.member_reports import MemberReports
    from grete.monitor.watching import JobWatch


SHOWN_S = 0.1  # between two views of what the workers say, at least: a browser takes two a second

app = typer.Typer(add_completion=False)


@job_command(app)
def up(
    named: NamedJob, *, processes: Processes = None, starts: StartTimes = None, page: PageOptions = PageOptions()
) -> None:
    """Keep the workers of a job running on this machine until Ctrl-C; restart those that die."""
    page.check()
    found = named.target()
    if keep_running(found, page, processes=processes, starts=starts or ()):
        end_unanswered()


def keep_running(
    found: JobTarget, page: PageOptions = PageOptions(), *, processes: int | None = None, starts: Sequence[str] = ()
) -> bool:
    """Keep the workers running until Ctrl-C; return whether an answer of the log is still to come.

    On Kafka it is one member of the job, of as many as run: it hosts what the assignment gives it.

    ``processes``: how many workers share the partitions, None: one for each. ``starts``: what --from says.
    """
    share = ShareSignals()
    screen = Screen(Console(file=standard_output()))
    patience = Patience(say=screen.say)
    stop = StopSignal(partial(patience.end_within, found.settings.shutdown_timeout_ms / 1000))
    begun: LocalJob | None = None
    with stop.excuses(), ExitStack() as opened:
        local, member = _begin(found, patience, processes, starts, opened)
        begun = local
        opened.enter_context(screen)
        screen.say(
            f"{found.job.name}: {_workers(found, local, processes)} in {found.job_directory.directory}; "
            "Ctrl-C stops them"
        )
        warn(found.job, screen)
        feeding = Feeding(local, None, {}, follow=True)
        shown = _Shown(found, page, member, opened)
        if shown.watch is not None:
            screen.say(f"page, metrics and health: {shown.watch.url}")
        while not stop.asked:
            try:
                if member is not None:
                    member.poll()
                if more := share.taken():
                    local.share(more)
                step(local, feeding, screen)
            except Halted as error:
                if member is not None:
                    member.halt(error)
                if shown.watch is not None:
                    _show_halted(local, shown.watch, stop, screen, error)
                raise
            shown.turn(local)
        tell_timers(local, screen)
        screen.say("stopping …")
        if member is not None:
            member.hand_over()
        local.stop()
        tell(local, screen)
    if begun is None:
        screen.say(UNANSWERED)
    else:
        begun.require_stopped()
    return patience.waiting


class _Shown:
    """This machine as it is seen: on its page, if it serves one, and by the other members of the job."""

    watch: "JobWatch | None" = None
    _views: "JobViews | None" = None
    _reports: "MemberReports | None" = None

    def __init__(self, found: JobTarget, page: PageOptions, member: JobMember | None, opened: ExitStack) -> None:
        """Serve what is asked for, until ``opened`` is closed."""
        self._member = member
        self._next_s = 0.0
        if page.http is not None:
            from grete.monitor.watching import watching

            served = watching(found.job, found.settings, found.job_directory, page.http, reference=found.reference)
            self.watch = opened.enter_context(served)
            self._views = self.watch.views
        if member is not None:
            from grete.monitor.job_views import JobViews
            from grete.monitor.member_reports import MemberReports

            self._views = self._views or JobViews(found.job, found.settings, found.job_directory.directory)
            # a machine tells others what its own page shows: without one, no value
            self._reports = MemberReports(member.client, hide_values=self.watch is None)

    def turn(self, local: LocalJob) -> None:
        """Show what has changed, some times a second at most: a view has all tasks of the job."""
        reports, now_s = self._reports, time.monotonic()
        due = reports is not None and reports.due
        if self.watch is not None:
            self.watch.turned()
        if self._views is None or now_s < self._next_s or not (due or self.watch is not None):
            return
        self._next_s = now_s + SHOWN_S
        view = self._views.of_supervisor(local, self._member)
        if reports is not None and due:
            reports.send(view)
        if self.watch is not None:
            self.watch.show(view, () if reports is None else reports.others(view))


def _begin(
    found: JobTarget, patience: Patience, processes: int | None, starts: Sequence[str], opened: ExitStack
) -> tuple[LocalJob, JobMember | None]:
    """Return the job, on Kafka without a partition yet, and its member there; ``opened`` will close both.

    A log that has answered in this directory is waited for without end, whatever is asked of it: after a crash of the
    machine the network may be the last to come. Raises LogAway where none has: its address may be wrong.
    """
    on_kafka = found.job_directory.address.on_kafka
    right = found.job_directory.member_file.exists()
    while True:
        if right:
            patience.connect_seconds = math.inf
        try:
            with ExitStack() as begun:
                local = begun.enter_context(_local(found, patience, processes, starts))
                member = begun.enter_context(JobMember(local)) if on_kafka else None
                opened.push(begun.pop_all())
                return local, member
        except LogAway:
            right = right or patience.has_answered
            if patience.ended or not right:
                raise


def _local(found: JobTarget, patience: Patience, processes: int | None, starts: Sequence[str]) -> LocalJob:
    return LocalJob(
        found.job,
        found.reference,
        found.job_directory,
        found.settings,
        inputs=OutsideInputs(starts=starts_of(found.job, starts)),
        patience=patience,
        share=HostedShare(processes, Assignment() if found.job_directory.address.on_kafka else None),
    )


def _workers(found: JobTarget, local: LocalJob, processes: int | None) -> str:
    """Return the number of workers in words, with that of the partitions if they share them."""
    partitions = found.job.workers
    if found.job_directory.address.on_kafka:
        most = "" if processes is None else f", {counted(processes, 'worker')} at most"
        return f"a member for {counted(partitions, 'partition')}{most}"
    workers = counted(len(local.supervisor.workers), "worker")
    return workers if processes is None else f"{workers} for {counted(partitions, 'partition')}"


def _show_halted(local: LocalJob, watch: "JobWatch", stop: StopSignal, screen: Screen, error: Halted) -> None:
    """Stop the other workers, and serve what has happened until Ctrl-C: a person is needed, and looks there first."""
    screen.say(f"halted: {error}\nstopping the other workers …")
    watch.show(watch.views.of_supervisor(local))
    served = False
    while not (served and stop.asked):
        try:
            if served:
                local.supervisor.poll(POLL_MS)
            else:
                local.stop()
                screen.say(f"still served, until Ctrl-C: {watch.url}")
                served = True
        except Halted as other:  # it is shown, too: a person looks at them together
            screen.say(f"halted: {other}")
        watch.show(watch.views.of_supervisor(local))
