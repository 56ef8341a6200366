"""Watches a job that this process runs, and serves what it sees: `--http` of `grete up` and `grete worker`."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec.structs import replace

from grete.api.jobs.job import Job
from grete.errors import ConfigError, ExitCode, FrameworkError, Halted
from grete.job.directory import JobDirectory, directory_of
from grete.logs.address import open_reader
from grete.logs.patience import Patience
from grete.monitor.access import access_of
from grete.monitor.health import LIVE_SHARE
from grete.monitor.hiding import without_values
from grete.monitor.input_ends import InputEnds
from grete.monitor.job_view import JobView, ServingEnd
from grete.monitor.job_views import JobViews
from grete.monitor.member_reports import with_others
from grete.monitor.page.browse import Browse
from grete.monitor.page.job_graph import graph_of
from grete.monitor.page.page import Page
from grete.monitor.queries.api import StateApi, refused_where_tasks_run
from grete.monitor.server import Monitor, serving
from grete.ports import JobLogReader, Log
from grete.protocol.report import WorkerReport
from grete.quoting import shows_values
from grete.settings import Settings
from grete.worker.process.worker import Worker

_ASKS_S = 2.0  # for an answer of the log


class JobWatch:
    """Shows a job on a monitor: call ``show`` with each turn, or let it watch one worker."""

    def __init__(self, monitor: Monitor, views: JobViews, ends: InputEnds, url: str) -> None:
        """``views``: what makes them."""
        self.url, self.views = url, views
        self._monitor, self._ends = monitor, ends

    def of(self, worker: Worker, partition: int) -> Worker:
        """Show what the worker of a partition, in this process, says from now on; return it."""
        report, show_life, run = worker.reports.send, worker.show_life, worker.run

        def told(said: WorkerReport) -> None:
            report(said)
            turned = said.measures is None or said.measures.goes_on
            self.show(self.views.of_worker(partition, said), turned=turned)

        def lives() -> None:  # the watchdog says so, also within a turn of many slow records
            show_life()
            self._monitor.pulse.turned()

        def runs() -> ExitCode:
            try:
                return run()
            except FrameworkError as error:
                self.ended(error)
                raise

        worker.reports.send, worker.show_life = told, lives
        worker.run = runs  # type: ignore[method-assign]  # of this one
        return worker

    def ended(self, error: FrameworkError | None) -> None:
        """Show how the process ends: by an error, or because it was stopped."""
        if error is None:
            self._monitor.end(ServingEnd("stopped", ""))
            return
        self._monitor.end(ServingEnd("halted" if isinstance(error, Halted | ConfigError) else "failed", str(error)))

    def turned(self) -> None:
        """The loop that is watched goes on."""
        self._monitor.pulse.turned()

    def show(self, view: JobView, others: Sequence[JobView] = (), *, turned: bool = True) -> None:
        """Show a view, with the parts of ``others`` where the whole job is shown."""
        if turned:
            self._monitor.pulse.turned()
        view = replace(view, ends=self._ends.ends)
        told = others if shows_values() else [without_values(each) for each in others]  # they may have other settings
        self._monitor.show(view, with_others(view, told))


@contextmanager
def watching(
    job: Job,
    settings: Settings,
    job_directory: JobDirectory,
    address: str,
    *,
    reference: str,
    tasks: Collection[str] | None = None,
) -> Iterator[JobWatch]:
    """Serve at ``address`` within the block. Raises ConfigError if that cannot be had.

    ``reference``: the job as a command names it. ``tasks``: the names of those that this process runs, None: all.
    """

    def open_log() -> Log:
        return job_directory.open_log(create=False, patience=Patience(_ASKS_S, _ASKS_S, say=_silent))

    def open_to_read() -> JobLogReader:
        return open_reader(job_directory.address, job_directory.directory / "log.db")

    usual = job_directory.directory == directory_of(job, None, job_directory.address)
    where = [] if usual else [f"--directory={job_directory.directory}"]
    redrive = ["grete", "dlq", "redrive", reference, *where, *job_directory.address.arguments()]
    with ExitStack() as opened:
        browse = Browse(job, job_directory.state_directory, open_to_read, redrive=redrive)
        page = Page(graph_of(job, settings, tasks), browse)
        opened.callback(page.close)
        more = refused_where_tasks_run()
        if tasks is None:
            state = StateApi(job, job_directory.state_directory, open_to_read)
            opened.callback(state.close)
            more = state.routes()
        monitor = Monitor(LIVE_SHARE * settings.liveness_timeout_ms / 1_000, page, more)
        url = opened.enter_context(serving(monitor, address, access_of(settings)))
        ends = opened.enter_context(InputEnds(job, open_log))
        views = JobViews(job, settings, job_directory.directory)
        watch = JobWatch(monitor, views, ends, url)
        try:
            yield watch
        except FrameworkError as error:
            watch.ended(error)
            raise
        else:
            watch.ended(None)


def _silent(_line: str) -> None:
    """Say nothing: the workers say that the log does not answer."""
