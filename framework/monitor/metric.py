"""The kinds of metrics: of a task, of a worker process, and of the process that serves."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from grete.monitor.job_view import JobView, WorkerView
from grete.protocol.report import TaskReport

Values = float | Mapping[str, float] | None  # one value; one for each value of ``by``; none
OfJob = Callable[[JobView], Values]
OfTask = Callable[[JobView, TaskReport], Values]
OfWorker = Callable[[WorkerView], Values]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. ``by``: what tells its values apart, beside job, stage and partition."""

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    worry: str = ""
    by: str = ""


class TaskMetric(Metric, frozen=True, kw_only=True):
    """A metric of each task; ``of`` takes its report."""

    of: OfTask


class WorkerMetric(Metric, frozen=True, kw_only=True):
    """A metric of each worker process."""

    of: OfWorker


class JobMetric(Metric, frozen=True, kw_only=True):
    """A metric of the process that serves."""

    of: OfJob
