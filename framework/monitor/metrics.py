"""The metrics of a job in Prometheus' formats, made from what its workers have said last."""

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from grete.execution.changelog.commit_times import BUCKETS_S
from grete.monitor.catalog import COMMIT_SECONDS, COMMIT_TEXT, JOB_METRICS, TASK_METRICS, WORKER_METRICS
from grete.monitor.job_view import JobView
from grete.monitor.metric import Metric, Values

_OF_TASK, _OF_WORKER = ("job", "stage", "partition"), ("job", "worker", "partition")


class JobMetrics(Collector):
    """Collects the metrics of the view that ``look`` returns, None before there is one."""

    def __init__(self, look: Callable[[], JobView | None]) -> None:
        self._look = look
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return (text, content type) in the format that a scraper accepts."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def describe(self) -> list[Family]:
        """Return nothing: a registry would collect once to learn the names."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield each family with its samples."""
        view = self._look()
        if view is None:
            return
        tasks = [((view.job, task.stage, str(task.partition)), task) for _, task in view.tasks()]
        for metric in TASK_METRICS:
            family = _family(metric, _OF_TASK)
            for owner, task in tasks:
                _add(family, owner, metric.of(view, task))
            yield family
        commits = HistogramMetricFamily(COMMIT_SECONDS, COMMIT_TEXT, labels=_OF_TASK)
        for owner, task in tasks:
            bounds = [*map(str, BUCKETS_S), "+Inf"]
            counts = accumulate(task.measures.commit_counts)
            commits.add_metric(owner, list(zip(bounds, counts, strict=True)), task.measures.commit_sum_s)
        yield commits
        for of_worker in WORKER_METRICS:
            family = _family(of_worker, _OF_WORKER)
            for worker in view.workers:
                partition = str(worker.partitions[0]) if len(worker.partitions) == 1 else ""  # an empty label is none
                _add(family, (view.job, str(worker.number), partition), of_worker.of(worker))
            yield family
        for of_job in JOB_METRICS:
            family = _family(of_job, ("job",))
            _add(family, (view.job,), of_job.of(view))
            yield family


def _family(metric: Metric, names: tuple[str, ...]) -> GaugeMetricFamily | CounterMetricFamily:
    """Return a family without samples."""
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.text, labels=(*names, metric.by) if metric.by else names)


def _add(family: GaugeMetricFamily | CounterMetricFamily, owner: tuple[str, ...], values: Values) -> None:
    """Add the samples of one task or worker."""
    if isinstance(values, Mapping):
        for which, value in values.items():
            family.add_metric((*owner, which), value)
    elif values is not None:
        family.add_metric(owner, values)
