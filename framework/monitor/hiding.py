"""A view of a job without values: errors may quote what a record or the state has, so only their kind is left.

For what machines tell one another, each of which has its own settings.
"""

from msgspec.structs import replace

from grete.monitor.job_view import Incident, JobView, StandbyView, WorkerView
from grete.protocol.report import TaskReport
from grete.quoting import shows_keys

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
    measures = worker.measures
    if measures is not None and not shows_keys():
        measures = replace(measures, hot=())
    return replace(
        worker, measures=measures, tasks={name: _task(task) for name, task in worker.tasks.items()}, last_end=hidden
    )


def _standby(standby: StandbyView) -> StandbyView:
    hidden = {name: replace(task, trouble=_hidden(task.trouble)) for name, task in standby.tasks.items()}
    return replace(standby, tasks=hidden)


def _task(task: TaskReport) -> TaskReport:
    trouble = None if task.sink_trouble is None else _hidden(task.sink_trouble)
    end = None if task.end is None else replace(task.end, text=ELSEWHERE, traceback="")
    return replace(task, sink_trouble=trouble, last_failure=_hidden(task.last_failure), end=end)


def _hidden(text: str) -> str:
    return ELSEWHERE if text else text


def _cut(text: str) -> str:
    """Return the text before the error: how the worker ended."""
    how, colon, _ = text.partition(": ")
    return f"{how} {ELSEWHERE}" if colon else text
