"""A job's problems are told in words, with what to do; the numbers of nine broken jobs reveal the cause."""

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from grete.core.supervision.process_end import WorkerEnd
from grete.errors import ExitCode
from grete.monitor.health import not_ready
from grete.monitor.job_view import JobView, WorkerView
from grete.monitor.job_views import WINDOW_S, BusyTime
from grete.monitor.member_reports import by_clock, with_others
from grete.monitor.page.causes import findings_of
from grete.monitor.page.problems import Problems
from grete.protocol.report import DropCounts
from tests.monitor.test_server import get
from tests.monitor.views import view
from tests.support.broken_code import HALTS
from tests.support.broken_jobs import BROKEN, Scene, broken
from tests.support.browser import Browser
from tests.support.reports import AT_MS, OF_WORKER
from tests.support.reports import task_report as status

WAIT_S = 400


class Told(NamedTuple):
    """The expected finding of /status.json: words, where, a part of the value, and one of the remedy."""

    what: str
    where: str
    value: str
    remedy: str


TOLD = {
    "killed_sink": Told("a sink takes nothing", "add-up-0", "Connection refused", "check the sink"),
    "poisoned_record": Told("a record or the code fails", "worker 0", "offset 10, record 10: KeyError", "DeadLetter"),
    "slow_stage": Told("a stage is too slow", "score-0", "payments.py, line 21", "make process() faster"),
    "hot_key": Told("a key is hot", "score-0", "Keys by time: ann 9", "more partitions do not help"),
    "full_disk": Told("the disk is full or fails", "worker 0", "", "make room"),
    "broker_away": Told("the log does not answer", "payments", "has not answered", "check the brokers"),
    "not_deterministic": Told(
        "a deterministic task is not deterministic", "worker 0", "GRETE-H031: number-0 is not", "check-determinism"
    ),
    "frozen_worker": Told("a worker process is stopped", "worker 1", "Waiting for it since", "kill -CONT"),
    "blocking_code": Told("your code blocks", "add-up-0", "in process, which is at", "needs a time-out"),
}


def metrics(url: str) -> dict[str, Metric]:
    """Return the metrics of a job by name."""
    return {each.name: each for each in text_string_to_metric_families(get(url, "/metrics")[1].decode())}


def value(found: dict[str, Metric], name: str, **chosen: str) -> float:
    """Return the highest sample of a metric whose labels are as chosen; 0 if there is none."""
    if name not in found:
        return 0.0
    samples = found[name].samples
    return max((s.value for s in samples if chosen.items() <= s.labels.items()), default=0.0)


class Diagnosis:
    """Names the cause by nothing but /metrics, asked again and again: the table of docs/guides/watch.md."""

    def __init__(self) -> None:
        self._first: dict[str, Metric] | None = None

    def cause(self, found: dict[str, Metric]) -> str | None:
        """Return the name of the broken job, None while the numbers do not say."""
        self._first = first = found if self._first is None else self._first
        if value(found, "grete_worker_halted", code="GRETE-H031"):
            return "not_deterministic"
        if value(found, "grete_log_away"):
            return "broker_away"
        if value(found, "grete_sink_trouble"):
            return "killed_sink"
        if value(found, "grete_worker_silent_seconds") > 5:
            return "frozen_worker"
        if value(found, "grete_worker_blocked_since_seconds"):
            return "blocking_code"
        if value(found, "grete_worker_ends", reason="disk"):
            return "full_disk"
        if value(found, "grete_worker_ends", reason="task error"):
            return "poisoned_record"
        busy = {
            stage: value(found, "grete_task_busy_seconds", stage=stage)
            - value(first, "grete_task_busy_seconds", stage=stage)
            for stage in ("parse", "score")
        }
        behind = value(found, "grete_checkpoint_age_seconds", stage="score") > 10
        if not (behind and busy["score"] > 5 and busy["score"] > 10 * busy["parse"]):
            return None
        return "hot_key" if value(found, "grete_hottest_key_share", stage="score") > 0.5 else "slow_stage"


def told(scene: Scene, expected: Told) -> dict[str, Any] | None:
    """Return the finding that says what is expected, once /status.json has it."""
    for finding in scene.status()["findings"]:
        said = Told(finding["what"], finding["where"], finding["value"], finding["remedy"])
        if said[:2] == expected[:2] and expected.value in said.value and expected.remedy in said.remedy:
            found: dict[str, Any] = finding
            return found
    return None


@pytest.mark.browser
@pytest.mark.timeout(WAIT_S)
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.kafka if each == "broker_away" else ()) for each in BROKEN]
)
def test_a_broken_job_is_found_out(name: str, tmp_path: Path, browser: Browser) -> None:
    """By its metrics alone, by what /status.json says, and by the page's text: the cause, where, and what to do."""
    with broken(name, tmp_path) as scene:
        diagnosis = Diagnosis()
        assert scene.until(lambda: diagnosis.cause(metrics(scene.url))) == name
        finding = scene.until(lambda: told(scene, TOLD[name]))
        assert finding["level"] == "error"
        browser.sized(1200)
        browser.open(f"{scene.url}/#/")
        expected = TOLD[name]
        text = browser.shows(f"{expected.where}: {expected.what}", expected.value, f"What to do: {finding['remedy']}")
        assert [each for each in TOLD if TOLD[each].what in text] == [name]
        assert get(scene.url, "/livez")[0] == 200
        if name == "slow_stage":
            assert scene.until(lambda: value(metrics(scene.url), "grete_stream_lag_messages", stage="score"))
            browser.open(f"{scene.url}/#/tasks?stage=score")
            browser.until(lambda: int(browser.find("td[data-label=lag]").text.split(" messages")[0]) > 0)
        if name == "poisoned_record":
            browser.click(".finding a")
            browser.shows("Partition 0 of 1", "euros")
        if scene.mend is not None:
            scene.mend()
            scene.until(lambda: not scene.status()["findings"])
            browser.shows("No problem found.")


def test_several_workers_that_halt_are_served_until_a_person_ends_it(tmp_path: Path) -> None:
    """The first one is no more to be looked at than the others, and none of them ends what is served."""
    with ExitStack() as opened:
        scene = Scene(tmp_path, "0", opened)
        scene.up(HALTS)
        scene.until(lambda: [task["status"] for task in scene.tasks()] == ["running"] * 3)
        for partition in range(3):
            scene.feed(1, partition=partition)
        scene.until(lambda: all(worker["measures"]["blocked"] for worker in scene.status()["workers"]))
        (tmp_path / "answer").touch()
        scene.until(lambda: [worker["halted"] for worker in scene.status()["workers"]] == [True] * 3)
        screen = scene.directory / "screen.txt"
        scene.until(lambda: "still served, until Ctrl-C" in screen.read_text())
        (found,) = scene.status()["findings"]
        assert (found["places"], found["where"]) == (
            ["worker 0", "worker 1", "worker 2"],
            "worker 0, worker 1, worker 2",
        )
        assert [text.count("switch it on") for text in (found["value"], *found["others"])] == [1] * 3
        assert found["since_ms"] == min(worker["last_end"]["at_ms"] for worker in scene.status()["workers"])
        assert scene.ended(signal.SIGTERM) == ExitCode.HALTED
        assert screen.read_text().count("switch it on") >= 3


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_wrong_is_named_and_raises_no_alarm(hours: int) -> None:
    """Ages go by the log's clock, of a task that works and of one that rests by this machine's; both are ready."""
    ahead_ms = hours * 3_600_000
    measures = replace(OF_WORKER, ahead_ms=ahead_ms)
    rests = status(checkpoint_id=AT_MS - ahead_ms - 60_000, rests_ms=AT_MS - 300)
    works = status(checkpoint_id=AT_MS - ahead_ms - 1_500, dead_letters=0)
    shown = view({"add-up-0": works, "add-up-1": replace(rests, measures=works.measures)}, measures=measures)
    assert [shown.age_s(task) for _, task in shown.tasks()] == [1.5, 0.3]
    assert not_ready(shown) == []
    (found,) = findings_of(shown)
    way = "ahead of" if hours > 0 else "behind"
    assert (found.what, found.level) == ("two clocks differ", "warning")
    assert found.value.startswith(f"this machine's clock is 3,600 s {way} the log's, which says 2027-01-15 ")


def end(reason: Any, **changed: Any) -> WorkerEnd:
    """Return an end of a worker."""
    return WorkerEnd(reason=reason, text="the error", at_ms=AT_MS, **changed)


def test_a_problem_of_many_tasks_is_one_and_has_a_time() -> None:
    """It is the time at which the first of them had it, and it is forgotten when it is over: the next one is new."""
    well, problems = status(dead_letters=0), Problems()
    slow = replace(well, sink_trouble="it refuses")
    tasks = dict.fromkeys([f"add-up-{number}" for number in range(8)], well)
    problems.take(view(tasks | {"add-up-3": slow}))
    later = replace(
        view(tasks | dict.fromkeys(["add-up-3", "add-up-5", "add-up-6", "add-up-7"], slow)), at_ms=AT_MS + 9_000
    )
    problems.take(later)
    (found,) = problems.now(later)
    assert (found.where, found.since_ms) == ("add-up-3 and 3 more", AT_MS)
    assert (found.places[1:], found.others[0]) == (("add-up-5", "add-up-6", "add-up-7"), "add-up-5: it refuses")
    problems.take(replace(view(tasks), at_ms=AT_MS + 11_000))
    again = replace(later, at_ms=AT_MS + 12_000)
    problems.take(again)
    assert problems.now(again)[0].since_ms == AT_MS + 12_000


OF_TASK = {
    "a sink takes nothing": status(sink_trouble="it refuses"),
    "a task waits for others": status(waits="for 70 s for the stream of x-0"),
    "records failed and were dropped": status(dropped=DropCounts(0, 0, 3), last_failure="KeyError"),
}


@pytest.mark.parametrize("what", OF_TASK)
def test_what_a_task_says_is_found(what: str) -> None:
    """Each trouble of a task has its words and a remedy."""
    found = findings_of(view({"add-up-0": OF_TASK[what]}))
    assert what in [each.what for each in found if each.remedy and each.where == "add-up-0"]


@pytest.mark.parametrize(("other_s", "what"), [(0.5, "a partition is hot"), (9.5, "a stage is too slow")])
def test_a_partition_that_has_most_of_the_work_is_told_apart(other_s: float, what: str) -> None:
    """By the time of the stage's other tasks, on whichever machine they are: they could do more, or they could not."""
    held = status("parse-0", held_up=True, dead_letters=0)
    slow = status("score-0", checkpoint_id=AT_MS - 60_000, rests_ms=None, dead_letters=0)
    here = replace(view({"score-0": slow, "parse-0": held}), busy={"score-0": 0.97}, host="a")
    other = status("score-1", dead_letters=0)
    there = replace(view({"score-1": other}), busy={"score-1": other_s / WINDOW_S}, host="b")
    (found,) = (each for each in findings_of(with_others(here, [by_clock(there, AT_MS)])) if each.where == "score-0")
    assert (found.what, found.level) == (what, "error")
    assert found.value.endswith(". Held up meanwhile: parse-0")


def test_a_healthy_job_has_no_findings() -> None:
    """Nothing is wrong: nothing is said. Letters that were written before stay a warning."""
    assert findings_of(view({"add-up-0": status(dead_letters=0)})) == []
    assert [each.level for each in findings_of(view({"add-up-0": status()}))] == ["warning"]


@pytest.mark.parametrize(
    ("shown", "level", "said"),
    [
        (view({}, running=False, last_end=end("killed"), crashes=1), "warning", "the error"),
        (view({}, running=False, last_end=end("killed"), crashes=2), "error", "the error"),
        (view({}, running=False, last_end=end("aborted"), crashes=1), "warning", "the error"),
        (view({}, running=False, last_end=end("log away")), "error", "the error"),
        (
            view({}, running=False, last_end=end("task error"), crashes=11, halted=True),
            "error",
            "given up after 11 crashes: the error",
        ),
        (view({}, running=False, fenced=True), "error", "fenced: a newer worker has taken its tasks"),
    ],
)
def test_an_end_of_a_worker_is_told(shown: JobView, level: str, said: str) -> None:
    """Once is a warning where the next start may be well; again, or given up, is an error."""
    (finding,) = findings_of(shown)
    assert (finding.level, finding.where, finding.value) == (level, "worker 0", said)
    assert finding.remedy


def busy_worker(busy_s: float, starts: int = 1) -> WorkerView:
    """Return a worker whose task was busy for so long."""
    return WorkerView(number=0, partitions=(0,), running=True, starts=starts, tasks={"add-up-0": status(busy_s=busy_s)})


def test_busy_is_a_share_of_the_last_seconds() -> None:
    """Not of a moment, not of a whole life; a worker that was started again begins from nothing."""
    busy = BusyTime()
    for second in range(21):
        busy.look([busy_worker(0.5 * second if second <= 10 else 5.0)], float(second))
        assert (busy.shares == {}) == (second < WINDOW_S / 2)
        if second == 10:
            assert busy.shares == {"add-up-0": 0.5}
    assert busy.shares == {"add-up-0": 0.0}
    busy.look([busy_worker(1.0, starts=2)], 21.0)
    assert busy.shares == {}
