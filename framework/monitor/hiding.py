"""A view of a job without values: errors may quote what a record or the state has, so only their kind is left."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from grete.monitor.job_view import Incident, JobView, StandbyView, WorkerView

ELSEWHERE = "(the error is in the worker's log: values are hidden here)"


def without_values(view: JobView) -> JobView:
    """Return the view with the texts of errors cut."""
    return replace(
        view,
        workers=tuple(map(_worker, view.workers)),
        standbys=tuple(map(_standby, view.standbys)),
        incidents=tuple(Incident(each.at_ms, _cut(each.text), each.kind) for each in view.incidents),
    )


def _worker(worker: WorkerView) -> WorkerView:
    end = worker.last_end
    hidden = None if end is None else replace(end, text=ELSEWHERE, traceback="")
    return replace(worker, tasks={name: _task(status) for name, status in worker.tasks.items()}, last_end=hidden)


def _standby(standby: StandbyView) -> StandbyView:
    return replace(standby, tasks={name: _task(status) for name, status in standby.tasks.items()})


def _task(status: Mapping[str, Any]) -> dict[str, Any]:
    trouble = "sink_trouble", "last_failure", "trouble"
    shown = {name: ELSEWHERE if name in trouble and value else value for name, value in status.items()}
    end = status.get("end")
    return shown if end is None else shown | {"end": end | {"text": ELSEWHERE, "traceback": ""}}


def _cut(text: str) -> str:
    """Return what comes before the error: how the worker ended."""
    how, colon, _ = text.partition(": ")
    return f"{how} {ELSEWHERE}" if colon else text
