"""Metrics as Prometheus reads them."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from grete.core.supervision.process_end import WorkerEnd
from grete.monitor.catalog import COMMIT_SECONDS, JOB_METRICS, TASK_METRICS, WORKER_METRICS
from grete.monitor.job_view import MemberShown
from grete.monitor.metrics import JobMetrics
from grete.protocol.report import InputPosition
from tests.monitor.views import view
from tests.support.reports import AT_MS
from tests.support.reports import task_report as status

TASK = (("job", "shop"), ("partition", "0"), ("stage", "add-up"))
FORMATS: dict[str, Callable[[str], Iterable[Any]]] = {
    "text/plain": plain_text,
    "application/openmetrics-text": open_metrics,
}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(metrics: JobMetrics, accept: str = "text/plain") -> Samples:
    """Return (name, labels) → value of a page."""
    page, content_type = metrics.page(accept)
    assert content_type.startswith(accept)
    families = FORMATS[accept](page.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


@pytest.mark.parametrize("accept", FORMATS)
def test_a_task_is_measured(accept: str) -> None:
    """A task's report becomes metrics with its job, stage and partition, in either format."""
    shown = view({"add-up-0": status()})
    found = scraped(JobMetrics(lambda: shown), accept)
    assert found["grete_checkpoint_age_seconds", TASK] == 1.5
    assert found["grete_event_time_lag_seconds", TASK] == 2.5
    assert found["grete_records_in_total", TASK] == 7
    assert found["grete_records_dropped_total", tuple(sorted([*TASK, ("reason", "late")]))] == 2
    assert found["grete_early_bytes", tuple(sorted([*TASK, ("place", "disk")]))] == 50
    lag = {labels: value for (name, labels), value in found.items() if name == "grete_input_lag_records"}
    assert lag == {(*TASK, ("topic", "orders")): 10}  # where prices end is not known yet
    buckets = {dict(labels)["le"]: value for (name, labels), value in found.items() if name.endswith("_bucket")}
    assert (buckets["0.005"], buckets["0.01"], buckets["+Inf"]) == (2, 3, 3)
    assert found[f"{COMMIT_SECONDS}_sum", TASK] == 0.02


def test_a_worker_that_has_not_spoken_is_measured() -> None:
    """A dead worker is a sample of 0, and has no samples of what only a live one knows."""
    shown = view({}, running=False, starts=4)
    found = scraped(JobMetrics(lambda: shown))
    labels = (("job", "shop"), ("partition", "0"), ("worker", "0"))
    assert found == {
        ("grete_worker_running", labels): 0,
        ("grete_worker_fenced", labels): 0,
        ("grete_worker_starts_total", labels): 4,
        ("grete_disk_free_bytes", (("job", "shop"),)): 1 << 40,
        ("grete_clock_ahead_seconds", (("job", "shop"),)): 0,
    }


def test_before_the_first_view_there_is_no_sample() -> None:
    """A job that is starting has none, and the page is one."""
    assert scraped(JobMetrics(lambda: None)) == {}


def test_every_metric_has_a_sample() -> None:
    """Each line of the catalog can be scraped from a job that runs."""
    end = WorkerEnd(reason="halted", text="it is lost", code="", at_ms=AT_MS)
    read = (InputPosition("shop.split.words", 0, 7),)
    shown = view({"add-up-0": status(streams=read)}, halted=True, last_end=end, ends={"halted": 1})
    shown = replace(shown, ends={**shown.ends, "shop.split.words[0]": 9})
    members = tuple(MemberShown(session=name, machine=name, owns=1, code="ab12") for name in ("a", "b"))
    shown = replace(shown, members=members, partitions_here=1, moved_ms=AT_MS)
    names = {name for name, _ in scraped(JobMetrics(lambda: shown))}
    assert {each.name for each in (*TASK_METRICS, *WORKER_METRICS, *JOB_METRICS)} <= names


def test_names_follow_the_rules_of_prometheus() -> None:
    """Counters end in _total, units are base units, and no name comes twice."""
    metrics = [*TASK_METRICS, *WORKER_METRICS, *JOB_METRICS]
    names = [each.name for each in metrics]
    assert len(set(names)) == len(names)
    for each in metrics:
        assert re.fullmatch(r"grete(_[a-z]+)+", each.name)
        assert each.name.endswith("_total") == (each.kind == "counter"), each.name
        assert not re.search(r"_(ms|us|kb|mb|minutes|rate)(_|$)", each.name), each.name


def test_a_task_with_nothing_to_commit_is_up_to_date() -> None:
    """It has had no input for a minute: an alert of its checkpoint's age would wake a person for nothing."""
    rests = status(checkpoint_id=AT_MS - 60_000, rests_ms=AT_MS - 250)
    assert view({"count-0": rests}).age_s(rests) == 0.25
