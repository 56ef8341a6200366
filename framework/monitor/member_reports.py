"""Reports of members to one another on their machines: with them the page of each shows the whole job (0134).

A report is the view of one machine, compressed, at the pace of its size: with 64 tasks some 5 KB, so one a second or
two. The reader puts its times into those of its own clock.
"""

import time
import zlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from grete.monitor.hiding import without_values
from grete.monitor.job_view import Incident, JobView, WorkerView
from grete.protocol.members import REPORT_BYTES_MAX
from grete.protocol.report import TaskReport
from grete.worker.members.members_client import MembersClient, OtherReport

PACE_S = 1.0  # between two reports of a member, at least
BYTES_S = 8 << 10  # of a member's reports in a second, at most
JOB_BYTES_S = 32 << 10  # of all members' reports
INCIDENTS_TOLD = 10  # the last ones: events of the last minutes in most jobs
VIEW_BYTES_MAX = 16 << 20  # of a report that is unpacked

_decoder = msgspec.json.Decoder(JobView)


def encode_view(view: JobView) -> bytes:
    """Return a machine's view as others read it: without what each knows itself, and what only metrics show."""
    told = replace(
        view,
        workers=tuple(
            replace(worker, tasks={name: _shown(task) for name, task in worker.tasks.items()})
            for worker in view.workers
        ),
        ends={},
        members=None,
        others=(),
        incidents=view.incidents[-INCIDENTS_TOLD:],
        moves=(),
    )
    return zlib.compress(msgspec.json.encode(told), 1)


def _shown(task: TaskReport) -> TaskReport:
    """Return a report without the numbers of commits, which would be half of it."""
    return replace(task, measures=replace(task.measures, commit_counts=(), commit_sum_s=0.0, commit_steps_s={}))


def decode_view(body: bytes) -> JobView | None:
    """Return the view in a report; None: another build, or another program, has written what this one cannot read."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(body, VIEW_BYTES_MAX)
        return _decoder.decode(data) if unpacking.eof else None
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class MemberReports:
    """The reports of one member. ``send`` a view when it is ``due``; ``others`` are the last ones of the others."""

    def __init__(self, client: MembersClient, *, hide_values: bool) -> None:
        """``hide_values``: no value of a record, of a state or in an error is told."""
        self._client, self._hide = client, hide_values
        self._due_s = 0.0
        self._read: dict[str, tuple[OtherReport, JobView | None]] = {}  # by session

    @property
    def due(self) -> bool:
        """Whether it is time for a report."""
        return time.monotonic() >= self._due_s

    def send(self, view: JobView) -> None:
        """Tell the others. A view that is too large for a message is not told."""
        body = encode_view(without_values(view) if self._hide else view)
        self._due_s = time.monotonic() + pace_s(len(body), len(view.members or ()))
        if len(body) <= REPORT_BYTES_MAX:
            self._client.report(body)

    def others(self, view: JobView) -> list[JobView]:
        """Return the parts of other members of a view, with their times by this machine's clock, as of when they came.

        A report is read once, however often it is asked for.
        """
        found, names = self._client.reports(), {each.session: each.machine for each in view.members or ()}
        now_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        for session, report in found.items():
            known = self._read.get(session)
            if known is None or known[0] is not report:
                part = decode_view(report.body)
                came_ms = now_ms - round((now_s - report.at_s) * 1_000)
                if part is not None:
                    part = by_clock(replace(part, host=names.get(session, part.host)), came_ms)
                self._read[session] = report, part
        self._read = {session: each for session, each in self._read.items() if session in found}
        return [part for _, part in self._read.values() if part is not None]


def pace_s(size: int, members: int) -> float:
    """Return the seconds from a report of ``size`` bytes to the next one."""
    return max(PACE_S, size / min(BYTES_S, JOB_BYTES_S / max(1, members)))


def by_clock(view: JobView, came_ms: int) -> JobView:
    """Return a part with its times by another clock, which said ``came_ms`` when it came."""
    ages = {task.name: age_s for _, task in view.tasks() if (age_s := view.age_s(task)) is not None}
    later = came_ms - view.at_ms
    return replace(
        view,
        at_ms=came_ms,
        ages=ages,
        workers=tuple(_worker_by_clock(worker, later, view.host) for worker in view.workers),
        standbys=tuple(replace(standby, host=view.host) for standby in view.standbys),
        incidents=tuple(
            Incident(each.at_ms + later, f"{view.host}: {each.text}", each.kind) for each in view.incidents
        ),
    )


def _worker_by_clock(worker: WorkerView, later: int, host: str) -> WorkerView:
    """Return a worker of ``host`` with its times moved by ``later`` ms."""
    end, measures = worker.last_end, worker.measures
    if measures is not None:
        blocked = measures.blocked
        moved = None if blocked is None else replace(blocked, since_ms=blocked.since_ms + later)
        measures = replace(measures, blocked=moved)
    moved_end = None if end is None else replace(end, at_ms=end.at_ms + later)
    return replace(worker, host=host, last_end=moved_end, measures=measures)


def with_others(view: JobView, others: Sequence[JobView]) -> JobView:
    """Return the view of the whole job: with the workers, standbys and incidents of other members.

    A task that two machines report is shown where its report is newer; where it runs here, that of here.
    """
    if not others:
        return view
    ages, busy, here = dict[str, float](), dict(view.busy), {name for worker in view.workers for name in worker.tasks}
    workers, standbys, incidents = [*view.workers], [*view.standbys], [*view.incidents]
    for other in sorted(others, key=_at, reverse=True):
        for worker in other.workers:
            tasks = {name: task for name, task in worker.tasks.items() if name not in here}
            here.update(tasks)
            busy |= {name: other.busy[name] for name in tasks if name in other.busy}
            ages |= {name: other.ages[name] for name in tasks if name in other.ages}
            measures = None if worker.measures is None else replace(worker.measures, ahead_ms=None)
            workers.append(replace(worker, tasks=tasks, measures=measures))
        standbys += other.standbys
        incidents += other.incidents
    return replace(
        view,
        workers=tuple(workers),
        standbys=tuple(standbys),
        incidents=tuple(sorted(incidents, key=_when)),
        busy=busy,
        ages=ages,
        others=tuple(others),
    )


def _at(view: JobView) -> int:
    return view.at_ms


def _when(incident: Incident) -> int:
    return incident.at_ms
