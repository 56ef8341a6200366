"""The time of a record (``time=``): the lag of event time behind it, and reads of it by a task."""

from typing import Any

import pytest

from grete import DeadLetter, Input, Job, Output, Record, Task, Timer, Timers, Topic, TumblingWindow, Window, json, utf8
from grete.api.jobs.definition import changes_of_job, define
from grete.api.tasks.mode import Mode
from grete.batch.check import left_out
from grete.errors import ConfigError, GraphError, TaskError
from grete.settings import Settings
from grete.testing import Kit
from tests.support.local_batch import run_job

MODES = pytest.mark.parametrize("mode", ["aligned", "deterministic"])
START = 1_600_000_000_000
SECOND = 1_000
CLICKS = Topic("clicks", key=utf8, value=json)  # name → {"at": ms}
COUNTS = Topic("counts", key=utf8, value=json)
LETTERS = Topic("letters", key=utf8, value=json)


def counting(mode: Mode = "aligned", partitions: int = 2, **arguments: Any) -> Job:
    """Count clicks by ten seconds of their own time; ``arguments``: of the input."""

    class Count(Task):
        clicks = Input(CLICKS, **arguments)
        seconds = TumblingWindow("seconds", 10 * SECOND, key=utf8, value=json)
        out = Output(COUNTS)

        def process(self, record: Record[str, Any]) -> None:
            self.seconds.update(record.key, record.timestamp, lambda count: (count or 0) + 1)

        def on_window(self, window: Window[str, int]) -> None:
            self.out.send(window.key, [window.start - START, window.value])

    return Job("count", stages=[Count], partitions=partitions, mode=mode)


def at(click: dict[str, int]) -> int:
    """Return the time of a click."""
    return click["at"]


def feed_backlog(kit: Kit) -> list[tuple[str, list[int]]]:
    """Feed two partitions of unequal density whose log timestamps run backwards; return what is to be counted."""
    for tick in range(200):
        for partition in range(2) if tick % 20 == 0 else (0,):
            click = {"at": START + tick * SECOND}
            kit.feed(CLICKS, f"p{partition}", click, timestamp=2 * START - tick, partition=partition)
    for partition in range(2):  # closes what is before
        kit.feed(CLICKS, "end", {"at": START + 1_000 * SECOND}, timestamp=0, partition=partition)
    dense = [("p0", [start * SECOND, 10]) for start in range(0, 200, 10)]
    return dense + [("p1", [start * SECOND, 1]) for start in range(0, 200, 20)]


@MODES
def test_a_backlog_goes_by_the_time_of_its_values(mode: Mode) -> None:
    """The log's timestamps say nothing: order of reading, windows and outputs go by the values, through crashes."""
    kit = Kit(counting(mode, time=at), settings=Settings(batch_bytes_max=300))
    expected = feed_backlog(kit)
    kit.run(crashes=10, seed=1)
    assert sorted(kit.pairs(COUNTS)) == sorted(expected)
    assert all(record.timestamp == START + record.value[0] + 9_999 for record in kit.outputs(COUNTS))


def test_a_batch_goes_by_the_time_of_the_values() -> None:
    """A backfill and an audit order and time records as live tasks do."""
    kit = Kit(counting(time=at))
    expected = feed_backlog(kit)
    done = run_job(kit.job, lambda place: kit._data.partition(place).rows)
    found = [row for result in done.values() for row in result.external]
    assert sorted((row.key, json.decode(row.value)) for row in found if row.key and row.value) == [
        (key.encode(), value) for key, value in sorted(expected)
    ]


@MODES
def test_a_value_without_a_time_stops_the_task(mode: Mode) -> None:
    """The error names the record, as that of ``process`` does."""
    kit = Kit(counting(mode, time=at, partitions=1))
    kit.feed(CLICKS, "a", {"at": START})
    kit.feed(CLICKS, "a", {"when": START})
    with pytest.raises(TaskError, match=r"topic clicks \(clicks\[0\]\), offset 1, .*KeyError: 'at'"):
        kit.run()
    kit = Kit(counting(mode, time=lambda _: "noon", partitions=1))
    kit.feed(CLICKS, "a", {})
    with pytest.raises(TaskError, match=r"offset 0.*time= gave 'noon': need an int, milliseconds since 1970"):
        kit.run()


@MODES
def test_a_value_without_a_time_is_a_dead_letter(mode: Mode) -> None:
    """The records around it are processed, in their order; a null value has the timestamp of the log."""
    kit = Kit(counting(mode, time=at, partitions=1, errors=DeadLetter(LETTERS)))
    for value in ({"at": START}, {}, {}, {"at": START + 1}, {"at": -1}, {"at": START + 20 * SECOND}):
        kit.feed(CLICKS, "a", value)
    kit.feed(CLICKS, "b", None, timestamp=START + 20 * SECOND)
    kit.run(crashes=5, seed=2)
    assert kit.pairs(COUNTS) == [("a", [0, 2])]
    assert kit.pairs(LETTERS) == [("a", {}), ("a", {}), ("a", {"at": -1})]
    found = [dict(record.headers) for record in kit.outputs(LETTERS)]
    assert [headers["grete.offset"] for headers in found] == [b"1", b"2", b"4"]
    assert len(kit.state("seconds")) == 2  # both at 20 seconds


class Stamp(Task):
    """Sends the time of each record, and the task's clock."""

    clicks = Input(CLICKS, time="intake")
    out = Output(COUNTS)

    def process(self, record: Record[str, Any]) -> None:
        """Send both."""
        self.out.send(record.key, [record.timestamp, self.ctx.now()])


@MODES
def test_the_time_of_intake_is_the_tasks_clock(mode: Mode) -> None:
    """It is not the timestamp of the log; in deterministic mode it is made again after a crash."""
    kit = Kit(Job("stamp", stages=[Stamp], mode=mode))
    first = kit.now_ms
    for count in range(50):
        kit.feed(CLICKS, f"k{count}", {}, timestamp=START)
        kit.advance(20)
    kit.run(crashes=10, seed=1)
    times = [value for _, value in kit.pairs(COUNTS)]
    assert len(times) == 50
    assert all(time == now and first <= time <= kit.now_ms for time, now in times)
    assert [record.timestamp for record in kit.outputs(COUNTS)] == [time for time, _ in times]
    assert times == sorted(times)


def test_records_out_of_order_by_a_bound_are_not_late() -> None:
    """The partition holds event time back by the bound, and no further."""
    for bound, counted in [(0, 1), (5 * SECOND, 2)]:
        kit = Kit(counting(out_of_order_ms=bound, partitions=1))
        for seconds in (9, 14, 9):
            kit.feed(CLICKS, "a", {}, timestamp=START + seconds * SECOND)
        kit.run()
        kit.feed(CLICKS, "a", {}, timestamp=START + 10 * SECOND + bound)
        kit.run()
        assert kit.pairs(COUNTS) == [("a", [0, counted])]


def test_an_input_has_its_own_time_without_records() -> None:
    """A partition that brings nothing holds event time back for ``idle_ms``, whatever the setting is."""
    kit = Kit(counting(idle_ms=200))
    for seconds in (0, 20):
        kit.feed(CLICKS, "a", {}, timestamp=START + seconds * SECOND, partition=0)
    kit.advance(150)
    assert kit.pairs(COUNTS) == []
    kit.advance(300)  # beyond the next checkpoint
    assert kit.pairs(COUNTS) == [("a", [0, 1])]


class Reads(Task):
    """Sends what it reads of event time."""

    clicks = Input(CLICKS)
    timers = Timers()
    out = Output(COUNTS)

    def process(self, record: Record[str, Any]) -> None:
        """Send the event time before this record."""
        self.timers.schedule(record.timestamp)
        self.out.send(record.key, self.ctx.event_time())

    def on_timer(self, timer: Timer) -> None:
        """Send the event time behind it."""
        self.out.send("timer", self.ctx.event_time())


@MODES
def test_a_task_reads_its_event_time(mode: Mode) -> None:
    """It is that behind the record before, None at first, and it is state."""
    kit = Kit(Job("reads", stages=[Reads], mode=mode))
    kit.feed(CLICKS, "a", {}, timestamp=START)
    kit.feed(CLICKS, "a", {}, timestamp=START + 5)
    kit.feed(CLICKS, "a", {}, timestamp=START + 3)
    kit.run()
    kit.crash("reads")
    kit.feed(CLICKS, "a", {}, timestamp=START + 9)
    kit.run()
    assert [value for key, value in kit.pairs(COUNTS) if key == "a"] == [None, START, START + 5, START + 5]
    assert [value for key, value in kit.pairs(COUNTS) if key == "timer"] == [START, START + 5, START + 5, START + 9]


def test_a_task_without_timers_has_no_event_time() -> None:
    """The error says what to declare."""

    class Asks(Task):
        clicks = Input(CLICKS)

        def process(self, record: Record[str, Any]) -> None:
            self.ctx.event_time()

    kit = Kit(Job("asks", stages=[Asks]))
    kit.feed(CLICKS, "a", {})
    with pytest.raises(TaskError, match=r"keeps no event time: declare Timers\(\) with on_timer, or a window"):
        kit.run()
    with pytest.raises(TaskError, match="the task is not running"):
        Task.ctx.event_time()


def test_what_is_no_way_to_tell_time_is_refused() -> None:
    """Each error says what is needed."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"time": "event"}, "time='event': need 'record', 'intake', 'none' or a function of the value"),
        ({"out_of_order_ms": -1}, "out_of_order_ms=-1: need an int of 0 ms or more"),
        ({"idle_ms": 0}, "idle_ms=0: need an int of 1 ms or more"),
    ]
    for given, needed in wrong:
        with pytest.raises(GraphError, match=f"stage 'count': input 'clicks': {needed}"):
            counting(**given)

    class Sends(Task):
        clicks = Input(CLICKS)
        out = Output(COUNTS)

        def process(self, record: Record[str, Any]) -> None:
            self.out.send(record.key, record.value)

    arguments: dict[str, Any] = {"time": "intake", "out_of_order_ms": 5, "idle_ms": 5}
    for argument, value in arguments.items():

        class Takes(Task):
            counts = Input(COUNTS, **{argument: value})

            def process(self, record: Record[str, Any]) -> None:
                pass

        with pytest.raises(GraphError, match=f"reads topic 'counts' with {argument}=, and stage 'sends'"):
            Job("both", stages=[Sends, Takes])


def test_another_time_is_refused_once_the_job_has_run() -> None:
    """The definition has which time it is; bounds may change. An older definition has none: the timestamps."""
    plain, value, intake = counting(), counting(time=at), counting(time="intake")
    assert "times" not in define(plain, {})["stages"][0]
    assert define(value, {})["stages"][0]["times"] == {"clicks": "value"}
    assert changes_of_job(define(value, {}), counting(time=at, out_of_order_ms=9, idle_ms=9)) == []
    for before, now, text in [
        (plain, value, "had time 'record', now of their value"),
        (value, intake, "had time of their value, now 'intake'"),
        (intake, plain, "had time 'intake', now 'record'"),
    ]:
        (change,) = changes_of_job(define(before, {}), now)
        assert text in change.what
        assert change.way.startswith("put time= back as it was")


def test_an_audit_refuses_the_time_of_intake() -> None:
    """It is not recorded in aligned mode."""
    with pytest.raises(ConfigError, match=r"\(time='intake'\), which aligned mode does not record\. Compare what"):
        left_out(counting(time="intake"), is_recorded=True)
    assert left_out(counting(time=at), is_recorded=True) == {}
