"""A job as its monitor sees it, made by hand."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from grete.monitor.job_view import JobView, WorkerView
from grete.protocol.report import TaskReport
from tests.support.reports import AT_MS, OF_WORKER


def named(tasks: Mapping[str, TaskReport]) -> dict[str, TaskReport]:
    """Return the reports with the names that they are given."""
    cut = {name: name.rpartition("-") for name in tasks}
    return {name: replace(task, stage=cut[name][0], partition=int(cut[name][2])) for name, task in tasks.items()}


def view(tasks: Mapping[str, TaskReport], **changed: Any) -> JobView:
    """Return a job of one worker with these tasks."""
    measures = OF_WORKER if tasks else None
    worker = WorkerView(number=0, partitions=(0,), running=True, tasks=named(tasks), measures=measures)
    ends = {"orders[0]": 100, "orders[1]": 10}
    return JobView(
        job="shop",
        at_ms=AT_MS,
        workers=(replace(worker, **changed),),
        checkpoint_interval_ms=200,
        ends=ends,
        disk_free_bytes=1 << 40,
    )
