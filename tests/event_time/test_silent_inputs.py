"""Inputs by which event time does not go: tables beside a stream (E1)."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, TumblingWindow, Window, int64, utf8
from grete.api.tasks.mode import Mode
from grete.api.topics.topic import Time
from grete.errors import ConfigError, GraphError
from grete.job.directory import JobDirectory
from grete.settings import Settings
from grete.state.pins.plan import By, plan_of
from grete.state.pins.prepare import prepare
from grete.testing import Kit
from tests.support.bound import bind

MINUTE = 60_000
DAY = 1_440 * MINUTE
VIEWS = Topic("views", key=utf8, value=int64)
NAMES = Topic("names", key=utf8, value=utf8)
COUNTED = Topic("counted", key=utf8, value=int64)


class Count(Task):
    """Counts views by the hour, beside a table of names."""

    views = Input(VIEWS)
    names = Input(NAMES, bootstrap=True)
    named = Store("name", key=utf8, value=utf8)
    hours = TumblingWindow("hours", 60 * MINUTE, key=utf8, value=int64)
    out = Output(COUNTED)

    def process(self, record: Record[str, Any]) -> None:
        if record.topic == "names":
            self.named.put(record.key, record.value)
        elif not self.hours.update(record.key, record.timestamp, lambda n: (n or 0) + 1):
            self.out.send("late", 1)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, window.value)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("pause_ms", [1_000, 20_000])
def test_a_pause_of_the_stream_lets_no_table_set_the_time(mode: Mode, pause_ms: int) -> None:
    """The stream is a month behind, the table is of today: nothing is late, however long the stream pauses."""
    kit = Kit(Job("count", stages=[Count], mode=mode))
    kit.feed(NAMES, "home", "Home")
    start = (kit.now_ms - 30 * DAY) // DAY * DAY
    for minute in range(0, 240, 10):
        if minute == 120:
            kit.advance(pause_ms)
            kit.feed(NAMES, "home", "House")
        kit.feed(VIEWS, "home", 1, timestamp=start + minute * MINUTE)
    kit.run(crashes=3, seed=1)
    assert kit.pairs(COUNTED) == [("home", 6)] * 3
    kit.drain()
    assert kit.pairs(COUNTED) == [("home", 6)] * 4


def count_job(**names: Any) -> Job:
    """Return the job with other arguments for its table."""
    return Job("count", stages=[type("Count", (Count,), {"names": Input(NAMES, **names), "name": "count"})])


def start(directory: Path, job: Job) -> Job:
    """Start a job on its log, as a worker does, and return it."""
    place = JobDirectory(directory)
    with closing(place.open_log(create=True)) as log:
        prepare(job, log, place, Settings())
    return job


def test_a_job_keeps_the_time_that_it_began_with(tmp_path: Path) -> None:
    """A definition of a release before lets its table tell the time, also with code that says nothing of it."""
    start(tmp_path, count_job(bootstrap=True, time="record"))
    with closing(JobDirectory(tmp_path).open_log()) as log:
        bind(log, "count")
    assert start(tmp_path, count_job(bootstrap=True)).stages[0].topics_timed() == {}
    with closing(JobDirectory(tmp_path).open_log()) as log:
        rows = plan_of(count_job(bootstrap=True), log, Settings())
        assert not plan_of(count_job(bootstrap=True, time="record"), log, Settings())
    assert [(row.by, row.way) for row in rows] == [(By.START, 'write time="record", and nothing differs')]
    assert "event time goes by topic 'names', as it did when the job began" in rows[0].what
    with pytest.raises(ConfigError, match="had time 'record', now 'none'"):
        start(tmp_path, count_job(bootstrap=True, time="none"))


def test_a_new_job_keeps_the_default_without_bootstrap(tmp_path: Path) -> None:
    """The bootstrap flag may change at any start, and the table still tells no time."""
    assert start(tmp_path, count_job(bootstrap=True)).stages[0].topics_timed() == {"names": "none"}
    assert start(tmp_path, count_job()).stages[0].topics_timed() == {"names": "none"}
    assert count_job().stages[0].topics_timed() == {}


def test_a_table_alone_tells_the_time() -> None:
    """Somebody has to: its windows would never close."""

    class Alone(Task):
        names = Input(NAMES, bootstrap=True)

        def process(self, record: Record[str, str]) -> None: ...

    assert Job("alone", stages=[Alone]).stages[0].topics_timed() == {}


@pytest.mark.parametrize(("time", "said"), [("record", True), ("none", False)])
def test_late_records_are_named_as_a_cause(time: Time[str], said: bool) -> None:
    """A crash is a pause: where a table tells the time, not only the code may have made another result."""
    kit, results = Kit(count_job(bootstrap=True, time=time)), iter([1, 1, 2])
    kit.feed(VIEWS, "home", 1)
    with pytest.raises(AssertionError) as found:
        kit.check_crashes(lambda _kit: next(results))
    assert ("event time goes by views and names, and by one of them alone" in str(found.value)) is said


def test_an_input_must_tell_the_time() -> None:
    """Else event time would never move on, and no window would close."""

    class Blind(Count):
        views = Input(VIEWS, time="none")
        names = Input(NAMES, time="none")

    with pytest.raises(GraphError, match="event time would never move on"):
        Job("count", stages=[Blind])
