"""The /metrics endpoint of an audit that follows a job."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from grete.monitor.metric import Metric


@dataclass
class AuditCounts:
    """Counts of an audit since its process began. ``differences``: by stage, each has an entry."""

    job: str
    differences: Counter[str]
    keys: int = 0
    records: int = 0
    begun: int = 0
    caught_up_s: float = field(default_factory=time.monotonic)  # when all that was committed had been compared


class AuditMetric(Metric, frozen=True, kw_only=True):
    """A metric of an audit."""

    of: Callable[[AuditCounts], float | Counter[str]]


AUDIT_METRICS = (
    AuditMetric(
        name="grete_audit_differences_total",
        kind="counter",
        by="stage",
        text="entries of the state that were not what the job's code makes of the same inputs",
        worry="it increases: [what differs](../guides/backfill.md#audit-a-running-job) is on the audit's screen",
        of=lambda counts: counts.differences,
    ),
    AuditMetric(
        name="grete_audit_keys_total",
        kind="counter",
        text="entries that were compared",
        worry="it does not increase while the job commits",
        of=lambda counts: counts.keys,
    ),
    AuditMetric(
        name="grete_audit_records_total",
        kind="counter",
        text="records that were processed again",
        of=lambda counts: counts.records,
    ),
    AuditMetric(
        name="grete_audit_age_seconds",
        kind="gauge",
        text="time since the audit had compared all that was committed",
        worry="it grows: the audit is slower than the job, and draws too many keys",
        of=lambda counts: time.monotonic() - counts.caught_up_s,
    ),
    AuditMetric(
        name="grete_audit_begins_total",
        kind="counter",
        text="how often the audit took a checkpoint as it is, without comparing it: at its first start, once",
        worry="it increases: commits were trimmed before they were compared, or state was written from outside",
        of=lambda counts: counts.begun,
    ),
)


class AuditMonitor(Collector):
    """Serves the counts of an audit."""

    def __init__(self, counts: AuditCounts) -> None:
        self._counts = counts
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def app(self) -> ASGIApp:
        """Return the answers as an ASGI application."""
        return Starlette(routes=[Route("/metrics", self._page, methods=["GET"])])

    def describe(self) -> list[Family]:
        """Return nothing: a registry would collect once to learn the names."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield each family with its samples."""
        for metric in AUDIT_METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.text, labels=("job", metric.by) if metric.by else ("job",))
            values = metric.of(self._counts)
            for which, value in values.items() if isinstance(values, Counter) else ((None, values),):
                family.add_metric((self._counts.job, *(() if which is None else (which,))), value)
            yield family

    def _page(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), headers={"content-type": content_type})
