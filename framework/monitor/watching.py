"""Watches a job that this process runs, and serves what it sees: `--http` of `grete up` and `grete worker`."""

import os
import platform
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from grete.api.jobs.job import Job
from grete.core.supervision.standbys import SupervisedStandby
from grete.errors import ConfigError, ExitCode, FrameworkError, Halted
from grete.job.directory import JobDirectory
from grete.logs.address import open_reader
from grete.logs.patience import Patience
from grete.monitor.health import LIVE_SHARE
from grete.monitor.hiding import ELSEWHERE, without_values
from grete.monitor.input_ends import InputEnds
from grete.monitor.job_view import Incident, JobView, ServingEnd, StandbyView, WorkerView
from grete.monitor.page.browse import Browse
from grete.monitor.page.job_graph import graph_of
from grete.monitor.page.page import Page
from grete.monitor.server import Monitor, serving
from grete.ports import JobLogReader, Log
from grete.protocol.report import REASONS, WorkerReport
from grete.settings import Settings
from grete.worker.members.job_member import JobMember
from grete.worker.process.worker import Worker
from grete.worker.supervisor.ends import free_bytes
from grete.worker.supervisor.local_job import LocalJob

_ASKS_S = 2.0  # for an answer of the log
_DISK_S = 2.0  # between two looks at the disk


class FreeSpace:
    """The free bytes on the disk of a directory, looked at now and then."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._bytes, self._looked_s = directory, 0, -_DISK_S

    def bytes(self, now_s: float) -> int:
        """Return it as it was a moment ago; ``now_s``: by the monotonic clock."""
        if now_s - self._looked_s >= _DISK_S:
            self._bytes, self._looked_s = free_bytes(self._directory), now_s
        return self._bytes


WINDOW_S = 10.0  # longer than most pauses of a job, shorter than a person's patience
_SAMPLE_S = 1.0  # between two samples of busy time


class BusyTime:
    """Busy time: ``shares`` is each task's share of the last seconds of its worker."""

    def __init__(self) -> None:
        self.shares: Mapping[str, float] = {}
        self._samples: deque[tuple[float, dict[tuple[str, int], float]]] = deque()

    def look(self, workers: Sequence[WorkerView], now_s: float) -> None:
        """Take a sample, if it is time for one. A worker that was started again begins from nothing."""
        if self._samples and now_s - self._samples[-1][0] < _SAMPLE_S:
            return
        sample = {(name, worker.starts): task.busy_s for worker in workers for name, task in worker.tasks.items()}
        self._samples.append((now_s, sample))
        while len(self._samples) > 1 and now_s - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()
        began_s, first = self._samples[0]
        past_s = now_s - began_s
        self.shares = (
            {}
            if past_s < WINDOW_S / 2
            else {key[0]: min(1.0, (busy_s - first[key]) / past_s) for key, busy_s in sample.items() if key in first}
        )


class MachineView(NamedTuple):
    """The standbys of a supervisor, and its part in the whole job."""

    standbys: tuple[StandbyView, ...] = ()
    partitions: int = 0
    members: int | None = None  # of the job, None: it has none
    codes: Mapping[str, tuple[str, ...]] = {}  # digest of their code → their machines
    moved_ms: int = 0  # when a partition last came or went


class JobWatch:
    """Shows a job on a monitor: call ``supervised`` with each turn, or let it watch one worker."""

    def __init__(
        self,
        job: Job,
        settings: Settings,
        monitor: Monitor,
        ends: InputEnds,
        directory: Path,
        url: str,
        *,
        hide_values: bool = False,
    ) -> None:
        self.url = url
        self._job, self._settings = job.name, settings
        self._monitor, self._ends = monitor, ends
        self._hide, self._host = hide_values, platform.node()
        self._busy = BusyTime()
        self._here = MachineView()
        self._free = FreeSpace(directory)

    def supervised(self, local: LocalJob, member: JobMember | None = None) -> None:
        """Show what all workers of a supervisor have said, and the members of the job, if this is one of them."""
        rows = [] if member is None else member.client.members()
        self._here = MachineView(
            standbys=tuple(
                _standby(each, local.supervisor.standby_pid(each.partition))
                for each in local.supervisor.core.standbys.by_partition.values()
            ),
            partitions=len(local.supervisor.core.assignment.active),
            members=None if member is None else len(rows),
            codes={code: tuple(row.machine for row in rows if row.code == code) for code in {row.code for row in rows}},
            moved_ms=0 if member is None else member.last_move_ms,
        )
        self._show(
            tuple(
                WorkerView(
                    number=worker.number,
                    partitions=worker.partitions,
                    running=worker.running,
                    pid=local.supervisor.pid(worker.number),
                    starts=worker.starts,
                    crashes=worker.restarts.crashes,
                    fenced=worker.exit_code == ExitCode.FENCED,
                    halted=worker.exit_code in (ExitCode.HALTED, ExitCode.FAILED),
                    last_end=worker.restarts.last,
                    ends={reason: worker.restarts.counts[reason] for reason in REASONS},
                    tasks=worker.reports.tasks,
                    measures=worker.reports.measures,
                    silent_s=worker.reports.silent_s,
                    stopped=_stopped(local.supervisor.pid(worker.number)) if worker.is_silent else None,
                )
                for worker in local.supervisor.workers.values()
            ),
            local.patience.trouble,
            tuple(Incident(at_ms, text) for at_ms, text in local.supervisor.incidents),
        )

    def of(self, worker: Worker, partition: int) -> Worker:
        """Show what the worker of a partition, in this process, says from now on; return it."""
        report, show_life, run = worker.reports.send, worker.show_life, worker.run

        def told(said: WorkerReport) -> None:
            report(said)
            tasks = {task.name: task for task in said.tasks}
            here = WorkerView(number=partition, partitions=(partition,), running=True, pid=os.getpid(), tasks=tasks)
            self._show((replace(here, measures=said.measures),), turned=said.measures is None or said.measures.goes_on)

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
        text = f"{type(error).__name__} {ELSEWHERE}" if self._hide else str(error)
        self._monitor.end(ServingEnd("halted" if isinstance(error, Halted | ConfigError) else "failed", text))

    def _show(
        self,
        workers: tuple[WorkerView, ...],
        log_trouble: str | None = None,
        incidents: tuple[Incident, ...] = (),
        *,
        turned: bool = True,
    ) -> None:
        if turned:
            self._monitor.pulse.turned()
        now_s = time.monotonic()
        self._busy.look(workers, now_s)
        view = JobView(
            job=self._job,
            at_ms=time.time_ns() // 1_000_000,
            workers=workers,
            standbys=self._here.standbys,
            checkpoint_interval_ms=self._settings.checkpoint_interval_ms,
            ends=self._ends.ends,
            busy=self._busy.shares,
            log_trouble=log_trouble,
            disk_free_bytes=self._free.bytes(now_s),
            members=self._here.members,
            codes=self._here.codes,
            partitions_here=self._here.partitions,
            moved_ms=self._here.moved_ms,
            host=self._host,
            incidents=incidents,
        )
        self._monitor.show(without_values(view) if self._hide else view)


@contextmanager
def watching(
    job: Job,
    settings: Settings,
    job_directory: JobDirectory,
    address: str,
    *,
    tasks: Collection[str] | None = None,
    hide_values: bool = False,
) -> Iterator[JobWatch]:
    """Serve at ``address`` within the block. Raises ConfigError if that cannot be had.

    ``tasks``: the names of those that this process runs, None: all. ``hide_values``: no value of a record, of a state
    or in an error is served.
    """

    def open_log() -> Log:
        return job_directory.open_log(create=False, patience=Patience(_ASKS_S, _ASKS_S, say=_silent))

    def open_to_read() -> JobLogReader:
        return open_reader(job_directory.address, job_directory.directory / "log.db")

    with ExitStack() as opened:
        browse = Browse(job, job_directory.state_directory, open_to_read, hide_values=hide_values)
        page = Page(graph_of(job, settings, tasks, hide_values=hide_values), browse)
        opened.callback(page.close)
        monitor = Monitor(LIVE_SHARE * settings.liveness_timeout_ms / 1_000, page)
        url = opened.enter_context(serving(monitor, address))
        ends = opened.enter_context(InputEnds(job, open_log))
        watch = JobWatch(job, settings, monitor, ends, job_directory.directory, url, hide_values=hide_values)
        try:
            yield watch
        except FrameworkError as error:
            watch.ended(error)
            raise
        else:
            watch.ended(None)


def _standby(each: SupervisedStandby, pid: int | None) -> StandbyView:
    return StandbyView(
        partition=each.partition, running=each.live, pid=pid, starts=each.starts, behind=each.behind, tasks=each.tasks
    )


def _stopped(pid: int | None) -> bool | None:
    """Tell whether a process is stopped, as by SIGSTOP or a debugger; None: the system does not say."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return None
    return state in ("T", "t")


def _silent(_line: str) -> None:
    """Say nothing: the workers say that the log does not answer."""
