"""The page's view of a job now: its tasks, the streams between them, its problems and what to do."""

from collections.abc import Mapping, Sequence
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from grete.monitor.job_view import Incident, JobView, ServingEnd, StandbyView, WorkerView
from grete.monitor.page.causes import FindingAt
from grete.monitor.page.history import CounterKind, History
from grete.monitor.page.job_graph import JobGraph, TaskShown
from grete.monitor.page.problems import Problem, Problems
from grete.protocol.report import DropCounts, EarlyBytes, OtherTasks, StandbyState, TaskReport, TaskState
from grete.worker.members.partition_moves import PartitionMove

INCIDENTS_SHOWN = 50  # a page of them
MOVES_SHOWN, MOVES_MS = 40, 6 * 3_600_000  # the last ones, of the last hours
_WORST_FIRST = (StandbyState.STOPPED, StandbyState.RESTORING, StandbyState.STANDBY)


class RestoreShown(msgspec.Struct, frozen=True):
    """The progress of a restore. ``left_s``: for how long it still takes, None: not known."""

    done: int
    end: int
    left_s: float | None


class Buffers(msgspec.Struct, frozen=True):
    """The bytes that a task holds in memory and on disk."""

    uncommitted_bytes: int
    unacknowledged_bytes: int
    held_bytes: int
    early_bytes: EarlyBytes
    sink_bytes: int


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it is shown; one that has said nothing yet, only by its place."""

    name: str
    stage: str
    partition: int
    state: str
    host: str
    pid: int | None
    age_s: float | None = None
    checkpoint_id: int | None = None
    generation: int | None = None
    lag: int | None = None
    stream_lag: int | None = None
    waits: str | None = None
    behind: OtherTasks | None = None
    commit: tuple[int, str] | None = None
    channels: tuple[int, int] = (0, 0)
    held_by: str | None = None
    held_up: bool = False
    buffers: Buffers | None = None
    sink_trouble: str | None = None
    last_failure: str = ""
    dropped: DropCounts | None = None
    dead_letters: int = 0
    timers: int = 0
    busy: float | None = None
    in_: float | None = msgspec.field(default=None, name="in")
    out: float | None = None
    restore: RestoreShown | None = None


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process as it is shown."""

    place: str
    host: str
    number: int
    partitions: tuple[int, ...]
    running: bool
    pid: int | None
    starts: int
    crashes: int
    fenced: bool
    halted: bool
    traceback: str
    busy: float | None
    rocksdb_memory_bytes: int | None
    state_disk_bytes: int | None


class StandbyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The standby of a partition as it is shown."""

    partition: int
    host: str
    running: bool
    pid: int | None
    state: str
    starts: int
    behind: int | None


class MachineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that runs a part of the job. ``lag``, ``rate``: of its tasks, None: not known.

    ``reported_s``: how old its report is, None: it is this machine, or it has sent none.
    """

    machine: str
    here: bool
    leads: bool
    leaving: bool
    code: str
    since_ms: int
    owns: int
    running: int  # tasks
    standbys: int
    lag: int | None
    rate: float | None
    disk_free_bytes: int | None
    reported_s: float | None


class LivePage(msgspec.Struct, frozen=True, kw_only=True):
    """The job now: times in ms since 1970, ages in s, rates in records a second. ``slowest``: the name of a task.

    ``waiting``: messages from one stage that the next one has not processed, by edge.
    """

    job: str
    at_ms: int
    log_ms: int
    host: str
    ended: ServingEnd | None
    machines: list[MachineRow]
    workers: list[WorkerRow]
    standbys: list[StandbyRow]
    tasks: list[TaskRow]
    rates: list[float | None]
    waiting: list[int | None]
    gap_s: float | None
    slowest: str | None
    findings: list[Problem]
    incidents: list[Incident]
    moves: list[PartitionMove]


def live(graph: JobGraph, history: History, problems: Problems, view: JobView) -> LivePage:
    """Return the contents of the page."""
    workers = {partition: worker for worker in reversed(view.workers) for partition in worker.partitions}
    hosts = {task.name: worker for worker, task in view.tasks()}
    tasks = [task_row(history, view, task, hosts.get(task.name), workers) for task in graph.tasks]
    known = [(row.age_s, row.name) for row in tasks if row.age_s is not None]
    slowest = max(known, key=itemgetter(0)) if known else None
    incidents = sorted((*view.incidents, *list(history.incidents)), key=_at)[-INCIDENTS_SHOWN:]
    return LivePage(
        job=view.job,
        at_ms=view.at_ms,
        log_ms=view.log_ms,
        host=view.host,
        ended=view.ended,
        machines=machine_rows(view, tasks),
        workers=[_worker_row(history, view, worker) for worker in view.workers],
        standbys=[_standby_row(view, standby) for standby in view.standbys],
        tasks=tasks,
        rates=edge_rates(graph, history),
        waiting=edge_lags(graph, view),
        gap_s=None if slowest is None else slowest[0] - min(known)[0],
        slowest=None if slowest is None else slowest[1],
        findings=problems.now(view, _of_end(view)),
        incidents=incidents[::-1],
        moves=[move for move in view.moves[-MOVES_SHOWN:][::-1] if move.at_ms > view.log_ms - MOVES_MS],
    )


def task_row(
    history: History, view: JobView, task: TaskShown, host: WorkerView | None, workers: Mapping[int, WorkerView]
) -> TaskRow:
    """Return the row of a task; of one whose worker is dead, as it said last."""
    seen = history.seen.get(task.name)
    worker = host or workers.get(task.partition)
    row = TaskRow(
        name=task.name,
        stage=task.stage,
        partition=task.partition,
        state=_state(host, worker, None if seen is None else seen.task),
        host="" if worker is None else worker.host or view.host,
        pid=None if worker is None else worker.pid,
    )
    return row if seen is None else _with_report(row, history, view, seen.task, restores=host is not None)


def _with_report(row: TaskRow, history: History, view: JobView, task: TaskReport, *, restores: bool) -> TaskRow:
    measures, lags, streams, commit = task.measures, view.lags(task), view.stream_lags(task), task.commit
    return replace(
        row,
        age_s=view.age_s(task),
        checkpoint_id=task.checkpoint_id if task.checkpoint_id > 0 else None,
        generation=task.generation,
        lag=sum(lags.values()) if lags else None,
        stream_lag=sum(streams.values()) if streams else None,
        waits=task.waits,
        behind=task.behind,
        commit=None if commit is None else (commit.checkpoint_id, commit.step),
        channels=(task.channels.done, task.channels.total),
        held_by=measures.held_by,
        held_up=measures.held_up,
        buffers=Buffers(
            measures.uncommitted_bytes,
            measures.unacknowledged_bytes,
            measures.held_bytes,
            measures.early_bytes,
            measures.sink_bytes,
        ),
        sink_trouble=task.sink_trouble,
        last_failure=task.last_failure,
        dropped=task.dropped,
        dead_letters=measures.dead_letters,
        timers=task.timers,
        busy=view.busy.get(row.name),
        in_=history.rate(CounterKind.IN, row.name),
        out=history.rate(CounterKind.OUT, row.name),
        restore=_restore(history, task) if restores else None,
    )


def _restore(history: History, task: TaskReport) -> RestoreShown | None:
    done, end = task.restore.done, task.restore.total
    if task.status is not TaskState.STARTING or end <= done:
        return None
    rate = history.rate(CounterKind.RESTORED, task.name)
    return RestoreShown(done, end, (end - done) / rate if rate else None)


def _state(host: WorkerView | None, worker: WorkerView | None, task: TaskReport | None) -> str:
    if host is None and worker is not None:
        return "fenced" if worker.fenced else "starting" if worker.running else "dead"
    if host is not None and host.is_silent:
        return "silent"
    if host is not None and host.blocked is not None and task is not None and host.blocked.task == task.name:
        return "blocked"
    return "unknown" if host is None or task is None else task.status.value


def edge_rates(graph: JobGraph, history: History) -> list[float | None]:
    """Return records a second of each edge of the graph; None: not known yet."""
    rates: list[float | None] = []
    for edge in graph.edges:
        stage = edge.reader if edge.sender is None else edge.sender
        names = [task.name for task in graph.tasks if task.stage == stage]
        found = [history.rate_of(name, edge.counted, outgoing=edge.sender is not None) for name in names]
        known = [rate for rate in found if rate is not None]
        rates.append(sum(known) if known else None)
    return rates


def edge_lags(graph: JobGraph, view: JobView) -> list[int | None]:
    """Return the messages that wait at each edge between stages; None: it is none, or not known yet."""
    waiting: list[int | None] = []
    for edge in graph.edges:
        lags = [view.stream_lags(task) for _, task in view.tasks() if edge.sender and task.stage == edge.reader]
        known = [lag[edge.counted] for lag in lags if edge.counted in lag]
        waiting.append(sum(known) if known else None)
    return waiting


def machine_rows(view: JobView, tasks: Sequence[TaskRow]) -> list[MachineRow]:
    """Return the machines of the members that live; [] of a job that has none."""
    parts = {other.host: other for other in view.others} | {view.host: view}
    rows = []
    for member in view.members or ():
        told = member.here or member.reported_s is not None
        own = [task for task in tasks if task.host == member.machine]
        lags = [task.lag for task in own if task.lag is not None]
        rates = [task.in_ for task in own if task.in_ is not None]
        part = parts.get(member.machine)
        rows.append(
            MachineRow(
                machine=member.machine,
                here=member.here,
                leads=member.leads,
                leaving=member.leaving,
                code=member.code,
                since_ms=member.since_ms,
                owns=member.owns,
                running=sum(task.state == TaskState.RUNNING for task in own),
                standbys=sum((standby.host or view.host) == member.machine for standby in view.standbys),
                lag=sum(lags) if lags else None,
                rate=sum(rates) if rates else None,
                disk_free_bytes=part.disk_free_bytes if told and part is not None else None,
                reported_s=member.reported_s,
            )
        )
    return rows


def _worker_row(history: History, view: JobView, worker: WorkerView) -> WorkerRow:
    measures = worker.measures
    return WorkerRow(
        place=worker.place,
        host=worker.host or view.host,
        number=worker.number,
        partitions=worker.partitions,
        running=worker.running,
        pid=worker.pid,
        starts=worker.starts,
        crashes=worker.crashes,
        fenced=worker.fenced,
        halted=worker.halted,
        traceback="" if worker.last_end is None else worker.last_end.traceback,
        busy=history.rate(CounterKind.BUSY, worker.place),
        rocksdb_memory_bytes=None if measures is None else measures.rocksdb_memory_bytes,
        state_disk_bytes=None if measures is None else measures.state_disk_bytes,
    )


def _standby_row(view: JobView, standby: StandbyView) -> StandbyRow:
    states = {task.status for task in standby.tasks.values()}
    worst = next((each for each in _WORST_FIRST if each in states), None)
    return StandbyRow(
        partition=standby.partition,
        host=standby.host or view.host,
        running=standby.running,
        pid=standby.pid,
        state="starting" if worst is None else worst.value,
        starts=standby.starts,
        behind=None if standby.behind < 0 else standby.behind,
    )


def _of_end(view: JobView) -> list[FindingAt]:
    """Return the end of the process that serves, unless one of its workers says so."""
    ended = view.ended
    if ended is None or ended.kind == "stopped" or any(worker.halted for worker in view.workers):
        return []
    what = "the job has halted" if ended.kind == "halted" else "the job has ended with an error"
    remedy = "do what the text says before you start the job again: it goes on from its last checkpoint"
    return [FindingAt(level="error", what=what, where=view.job, value=ended.text, remedy=remedy)]


def _at(incident: Incident) -> int:
    return incident.at_ms
