"""What the page shows of a job now: its tasks, what flows between them, what is wrong and what to do."""

from collections.abc import Mapping
from typing import Any

from grete.findings import Finding
from grete.monitor.causes import findings_of
from grete.monitor.history import History
from grete.monitor.job_graph import JobGraph
from grete.monitor.job_view import Incident, JobView, StandbyView, WorkerView
from grete.protocol.report import StandbyState, TaskReport, TaskState

INCIDENTS_SHOWN = 50  # a page of them
_WORST_FIRST = (StandbyState.STOPPED, StandbyState.RESTORING, StandbyState.STANDBY)


def live(graph: JobGraph, history: History, view: JobView) -> dict[str, Any]:
    """Return plain values: times in ms since 1970, ages in s, rates in records a second."""
    workers = {partition: worker for worker in view.workers for partition in worker.partitions}
    hosts = {task.name: worker for worker, task in view.tasks()}
    tasks = [task_row(history, view, name, hosts.get(name), workers) for name in graph.tasks]
    known = [row for row in tasks if row["age_s"] is not None]
    incidents = sorted((*view.incidents, *list(history.incidents)), key=_at)[-INCIDENTS_SHOWN:]
    return {
        "job": view.job,
        "at_ms": view.at_ms,
        "host": view.host,
        "ended": view.ended,
        "workers": [_worker_row(history, worker) for worker in view.workers],
        "standbys": [_standby_row(standby) for standby in view.standbys],
        "tasks": tasks,
        "rates": edge_rates(graph, history),
        "gap_s": max(row["age_s"] for row in known) - min(row["age_s"] for row in known) if known else None,
        "slowest": max(known, key=_age)["name"] if known else None,
        "findings": [*_of_end(view), *findings_of(view)],
        "incidents": incidents[::-1],
    }


def task_row(
    history: History,
    view: JobView,
    name: str,
    host: WorkerView | None,
    workers: Mapping[int, WorkerView],
) -> dict[str, Any]:
    """Return what is shown of a task; of one whose worker is dead, what it said last."""
    stage, _, number = name.rpartition("-")
    seen = history.seen.get(name)
    worker = host or workers.get(int(number))
    row: dict[str, Any] = {
        "name": name,
        "stage": stage,
        "partition": int(number),
        "state": _state(host, worker, None if seen is None else seen.task),
        "pid": None if worker is None else worker.pid,
        "age_s": None,
        "checkpoint_id": None,
        "lag": None,
    }
    if seen is None:
        return row
    task = seen.task
    measures, lags, commit = task.measures, view.lags(task), task.commit
    row |= {
        "age_s": view.age_s(task),
        "checkpoint_id": task.checkpoint_id if task.checkpoint_id > 0 else None,
        "generation": task.generation,
        "lag": sum(lags.values()) if lags else None,
        "waits": task.waits,
        "behind": task.behind,
        "commit": None if commit is None else [commit.checkpoint_id, commit.step],
        "channels": [task.channels.done, task.channels.total],
        "held_by": measures.held_by,
        "held_up": measures.held_up,
        "buffers": {
            "uncommitted_bytes": measures.uncommitted_bytes,
            "unacknowledged_bytes": measures.unacknowledged_bytes,
            "held_bytes": measures.held_bytes,
            "early_bytes": measures.early_bytes,
            "sink_bytes": measures.sink_bytes,
        },
        "sink_trouble": task.sink_trouble,
        "last_failure": task.last_failure,
        "dropped": task.dropped,
        "dead_letters": measures.dead_letters,
        "timers": task.timers,
        "busy": view.busy.get(name),
        "in": history.rate(f"in {name}"),
        "out": history.rate(f"out {name}"),
        "restore": None,
    }
    done, end = task.restore.done, task.restore.total
    if host is not None and task.status is TaskState.STARTING and end > done:
        rate = history.rate(f"restore {name}")
        row["restore"] = {"done": done, "end": end, "left_s": (end - done) / rate if rate else None}
    return row


def _state(host: WorkerView | None, worker: WorkerView | None, task: TaskReport | None) -> str:
    if host is None and worker is not None:
        return "fenced" if worker.fenced else "starting" if worker.running else "dead"
    return "unknown" if host is None or task is None else task.status.value


def edge_rates(graph: JobGraph, history: History) -> list[float | None]:
    """Return records a second of each edge of the graph; None: not known yet."""
    rates: list[float | None] = []
    for edge in graph.edges:
        kind, _, stage = edge.source.partition(":")
        reader = edge.target.partition(":")[2]
        names = [name for name in graph.tasks if name.rpartition("-")[0] == (stage if kind == "stage" else reader)]
        found = [history.rate_of(name, edge.counted, outgoing=kind == "stage") for name in names]
        known = [rate for rate in found if rate is not None]
        rates.append(sum(known) if known else None)
    return rates


def _worker_row(history: History, worker: WorkerView) -> dict[str, Any]:
    measures = worker.measures
    return {
        "number": worker.number,
        "partitions": worker.partitions,
        "running": worker.running,
        "pid": worker.pid,
        "starts": worker.starts,
        "crashes": worker.crashes,
        "fenced": worker.fenced,
        "halted": worker.halted,
        "traceback": "" if worker.last_end is None else worker.last_end.traceback,
        "busy": history.rate(f"busy {worker.number}"),
        "rocksdb_memory_bytes": None if measures is None else measures.rocksdb_memory_bytes,
        "state_disk_bytes": None if measures is None else measures.state_disk_bytes,
    }


def _standby_row(standby: StandbyView) -> dict[str, Any]:
    states = {task.status for task in standby.tasks.values()}
    worst = next((each for each in _WORST_FIRST if each in states), None)
    return {
        "partition": standby.partition,
        "running": standby.running,
        "pid": standby.pid,
        "state": "starting" if worst is None else worst.value,
        "starts": standby.starts,
        "behind": None if standby.behind < 0 else standby.behind,
    }


def _of_end(view: JobView) -> list[Finding]:
    """Return what has ended the process that serves, unless one of its workers says so."""
    ended = view.ended
    if ended is None or ended.kind == "stopped" or any(worker.halted for worker in view.workers):
        return []
    what = "the job has halted" if ended.kind == "halted" else "the job has ended with an error"
    remedy = "do what the text says before you start the job again: it goes on from its last checkpoint"
    return [Finding(level="error", what=what, where=view.job, value=ended.text, remedy=remedy)]


def _age(row: Mapping[str, Any]) -> float:
    age: float = row["age_s"]
    return age


def _at(incident: Incident) -> int:
    return incident.at_ms
