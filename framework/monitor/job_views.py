"""Views of a job, made of what its supervisor knows, or one worker."""

import os
import platform
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from grete.api.jobs.job import Job
from grete.core.supervision.standbys import SupervisedStandby
from grete.core.supervision.supervised_worker import SupervisedWorker
from grete.errors import ExitCode
from grete.monitor.job_view import Incident, JobView, MemberShown, StandbyView, WorkerView
from grete.protocol.report import REASONS, WorkerReport
from grete.settings import Settings
from grete.worker.members.job_member import JobMember
from grete.worker.members.members_client import MemberRow
from grete.worker.supervisor.ends import free_bytes
from grete.worker.supervisor.local_job import LocalJob

SESSION_SHOWN = 4  # characters of a session, which is drawn: of a few on one machine they differ
_DISK_S = 2.0  # between two looks at the disk
WINDOW_S = 10.0  # longer than most pauses of a job, shorter than a person's patience
_SAMPLE_S = 1.0  # between two samples of busy time


class FreeSpace:
    """The free bytes on the disk of a directory, looked at now and then."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._bytes, self._looked_s = directory, 0, -_DISK_S

    def bytes(self, now_s: float) -> int:
        """Return it as it was a moment ago; ``now_s``: by the monotonic clock."""
        if now_s - self._looked_s >= _DISK_S:
            self._bytes, self._looked_s = free_bytes(self._directory), now_s
        return self._bytes


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


class JobViews:
    """Makes the views of one machine's part of a job."""

    def __init__(self, job: Job, settings: Settings, directory: Path) -> None:
        self._job, self._settings, self._host = job.name, settings, platform.node()
        self._busy, self._free = BusyTime(), FreeSpace(directory)

    def of_supervisor(self, local: LocalJob, member: JobMember | None = None) -> JobView:
        """Return the view of all workers of a supervisor, and of the members of the job, if this is one of them."""
        supervisor = local.supervisor
        here, members = self._host, None
        if member is not None:
            here, members = member.machine, tuple(_members(member))
        return replace(
            self._view(tuple(_worker(each, supervisor.pid(each.number)) for each in supervisor.workers.values())),
            standbys=tuple(
                _standby(each, supervisor.standby_pid(each.partition))
                for each in supervisor.core.standbys.by_partition.values()
            ),
            log_trouble=local.patience.trouble,
            incidents=tuple(Incident(at_ms, text) for at_ms, text in supervisor.incidents),
            members=members,
            partitions_here=len(supervisor.core.assignment.active),
            moved_ms=0 if member is None else member.last_move_ms,
            moves=() if member is None else member.client.moves(),
            host=next((each.machine for each in members or () if each.here), here),
        )

    def of_worker(self, partition: int, said: WorkerReport) -> JobView:
        """Return the view of one worker, in this process; ``said``: its report."""
        here = WorkerView(
            number=partition,
            partitions=(partition,),
            running=True,
            pid=os.getpid(),
            tasks={task.name: task for task in said.tasks},
            measures=said.measures,
        )
        return self._view((here,))

    def _view(self, workers: tuple[WorkerView, ...]) -> JobView:
        now_s = time.monotonic()
        self._busy.look(workers, now_s)
        return JobView(
            job=self._job,
            at_ms=time.time_ns() // 1_000_000,
            workers=workers,
            checkpoint_interval_ms=self._settings.checkpoint_interval_ms,
            busy=self._busy.shares,
            disk_free_bytes=self._free.bytes(now_s),
            host=self._host,
        )


def machine_names(rows: Sequence[MemberRow]) -> dict[str, str]:
    """Return session → the name of its machine; where two members have one name, with a part of the session."""
    counts = Counter(row.machine for row in rows)
    return {
        row.session: row.machine if counts[row.machine] == 1 else f"{row.machine} ({row.session[:SESSION_SHOWN]})"
        for row in rows
    }


def _members(member: JobMember) -> Iterator[MemberShown]:
    reports, rows, now_s = member.client.reports(), member.client.members(), time.monotonic()
    names = machine_names(rows)
    for row in rows:
        report = reports.get(row.session)
        yield MemberShown(
            session=row.session,
            machine=names[row.session],
            owns=row.owns,
            leads=row.leads,
            leaving=row.leaving,
            code=row.code,
            since_ms=row.since_ms,
            here=row.session == member.session,
            reported_s=None if report is None else now_s - report.at_s,
        )


def _worker(worker: SupervisedWorker, pid: int | None) -> WorkerView:
    return WorkerView(
        number=worker.number,
        partitions=worker.partitions,
        running=worker.running,
        pid=pid,
        starts=worker.starts,
        crashes=worker.restarts.crashes,
        fenced=worker.exit_code == ExitCode.FENCED,
        halted=worker.exit_code in (ExitCode.HALTED, ExitCode.FAILED),
        last_end=worker.restarts.last,
        ends={reason: worker.restarts.counts[reason] for reason in REASONS},
        tasks=worker.reports.tasks,
        measures=worker.reports.measures,
        silent_s=worker.reports.silent_s,
        stopped=_stopped(pid) if worker.is_silent else None,
    )


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
