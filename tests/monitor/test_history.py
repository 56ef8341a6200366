"""A job's history of the last hours, by the time of its views."""

from typing import Any

from msgspec.structs import replace

from grete.job.loader import load_job
from grete.monitor.job_view import JobView
from grete.monitor.page.history import KEPT_MS, POINT_MS, SAMPLE_MS, CounterKind, History
from grete.monitor.page.job_graph import graph_of
from grete.monitor.page.live import RestoreShown, edge_rates, live
from grete.monitor.page.problems import Problems
from grete.protocol.report import InputPosition, InputReport, Portion, TaskReport
from grete.settings import Settings
from tests.monitor.views import view
from tests.support.reports import AT_MS
from tests.support.reports import task_report as status

GRAPH = graph_of(load_job("tests/monitor/page_job.py"), Settings())
STREAM = next(edge.counted for edge in GRAPH.edges if edge.name == "words")


def at(ms: int, tasks: dict[str, TaskReport], **changed: Any) -> JobView:
    """Return a view ``ms`` after the first."""
    return replace(view(tasks, **changed), at_ms=AT_MS + ms)


def counted(sent: int, **changed: Any) -> TaskReport:
    """Return the status of a task that has sent ``sent`` records to the stream."""
    return status(records_in=sent, records_out=sent, sent_to={STREAM: sent}, **changed)


def test_a_rate_goes_on_when_a_worker_begins_to_count_from_0() -> None:
    """A new process counts from 0: nothing is taken off, and nothing twice."""
    history = History(GRAPH)
    for second, sent in enumerate([100, 110, 120, 5, 15]):
        history.take(at(second * SAMPLE_MS, {"split-0": counted(sent)}))
    assert history.rate(CounterKind.OUT, "split-0") == (10 + 10 + 5 + 10) / 4
    assert history.rate_of("split-0", STREAM, outgoing=True) == history.rate(CounterKind.OUT, "split-0")
    assert history.rate(CounterKind.OUT, "split-1") is None


def test_each_edge_has_its_rate() -> None:
    """From outside by committed positions, between stages by what was sent; files and tables are not counted."""
    history = History(GRAPH)
    for second in range(3):
        reads = [
            InputReport(topic="lines", partition=partition, offset=offset, lag_from=offset)
            for partition, offset in ((0, 3 * second), (1, 0))
        ]
        tasks = {"split-0": counted(7 * second, inputs=tuple(reads))}
        history.take(at(second * SAMPLE_MS, tasks))
    rates = {(edge.name, edge.target): rate for edge, rate in zip(GRAPH.edges, edge_rates(GRAPH, history), strict=True)}
    assert rates["lines", "stage:split"] == 3
    assert rates["words", "stage:count"] == 7
    assert rates["refused", "topic:refused"] == 0
    assert rates["archive", "sink:count.archive"] is None


def test_three_hours_are_kept_and_no_more_and_a_chart_shows_the_worst() -> None:
    """A chart has the slowest task of each stretch of time; a dead worker's tasks continue to grow old."""
    history, points = History(GRAPH), KEPT_MS // POINT_MS
    for number in range(points + 100):
        now = AT_MS + number * POINT_MS
        slow = 60_000 if number == points else 1_000
        read = InputReport(topic="lines", partition=0, offset=number * 10, lag_from=number * 10)
        tasks = {
            "split-0": status(checkpoint_id=now - 500, inputs=(read,)),
            "count-1": status(checkpoint_id=now - slow),
        }
        busy = {"split-0": 0.1, "count-1": 0.9 if number == points else 0.2}
        history.take(replace(at(number * POINT_MS, tasks), busy=busy))
    shown = history.points(240)
    assert len(shown) == 240
    assert shown[-1].at_ms - shown[0].at_ms > KEPT_MS * 0.99
    worst = max(shown, key=lambda point: point.gap_s or 0)
    assert (worst.gap_s, worst.slowest) == (59.5, "count-1")
    assert (worst.age_s, worst.busy) == (60.0, 0.9)
    assert {point.busy for point in shown} == {0.2, 0.9}
    assert [point.rate for point in shown[1:]] == [2.0] * 239  # ten records in five seconds
    (first, second) = history.ages("count", 10)
    assert (first.task, set(first.ages)) == ("count-0", {None})
    assert max(age or 0 for age in second.ages) == 60
    last = at((points + 99) * POINT_MS + 30_000, {"split-0": status(checkpoint_id=AT_MS)})
    history.take(last)
    dead = next(row for row in live(GRAPH, history, Problems(), last).tasks if row.name == "count-1")
    assert dead.age_s == 31


def test_a_rollback_names_the_task_that_began_again() -> None:
    """It is the one before it whose generation rose last."""
    history = History(GRAPH)
    for ms, generation, rollbacks in ((0, 2, 0), (500, 3, 0), (900, 3, 1), (950, 3, 1)):
        tasks = {"split-1": status(generation=generation), "count-0": status(rollbacks=rollbacks)}
        history.take(at(ms, tasks))
    (incident,) = history.incidents
    assert incident.kind == "rollback"
    assert "count-0 rolled back to checkpoint" in incident.text
    assert "split-1 began again (generation 3)" in incident.text


def test_a_worker_that_is_back_says_after_how_long() -> None:
    """From the moment at which it was not running until its tasks take input."""
    history = History(GRAPH)
    history.take(at(0, {"split-0": status()}))
    history.take(at(100, {}, running=False))
    history.take(at(200, {}, starts=2))
    history.take(at(1_300, {"split-0": status(status="starting")}, starts=2))
    assert not history.incidents
    history.take(at(2_100, {"split-0": status()}, starts=2))
    (incident,) = history.incidents
    assert incident.text == "worker 0 takes input again after 2.0 s, 4 entries of state restored"


def test_messages_between_stages_wait_at_their_edge() -> None:
    """Those that all tasks of the reading stage have not processed, as far as the end of their stream is known."""
    read = tuple(InputPosition(STREAM, partition, 40) for partition in range(3))
    tasks = {"count-0": status(streams=read[:1]), "count-1": status(streams=read[1:])}
    shown = replace(at(0, tasks), ends={f"{STREAM}[0]": 45, f"{STREAM}[1]": 47, "lines[0]": 9})
    history = History(GRAPH)
    history.take(shown)
    found = live(GRAPH, history, Problems(), shown)
    waiting = [count for edge, count in zip(GRAPH.edges, found.waiting, strict=True) if edge.counted == STREAM]
    assert waiting == [12]
    assert [row.stream_lag for row in found.tasks if row.stage == "count"][:2] == [5, 7]


def test_a_restore_has_the_time_that_it_will_take() -> None:
    """The rate at which it read lately gives the time."""
    history, shown = History(GRAPH), None
    for second in range(5):
        shown = at(second * SAMPLE_MS, {"count-0": status(status="starting", restore=Portion(100 * second, 1_000))})
        history.take(shown)
    assert shown is not None
    row = next(row for row in live(GRAPH, history, Problems(), shown).tasks if row.name == "count-0")
    assert row.restore == RestoreShown(done=400, end=1_000, left_s=6.0)
