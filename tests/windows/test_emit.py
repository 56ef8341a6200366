"""Early results, late records, and declarations that are refused."""

from typing import Any

import pytest

from grete import Every, Input, Job, Output, Record, Task, Timer, Timers, Window, int64, utf8
from grete.api.stateful.windows import WindowStore
from grete.api.tasks.mode import Mode
from grete.api.topics.topic import Errors
from grete.errors import ConfigError, GraphError
from grete.testing import Kit
from tests.windows.jobs import (
    Hopping,
    Result,
    Session,
    Sliding,
    Tumbling,
    job_of,
    late_topic,
    lines,
    results,
    results_topic,
    texts,
)


def run(window: WindowStore[str, list[str]], *fed: tuple[int, str]) -> list[Result]:
    """Return the results of records (timestamp, text) of the key a."""
    kit = Kit(job_of(window))
    for timestamp, text in fed:
        kit.feed(lines, "a", text, timestamp=timestamp)
    kit.run(crashes=1, seed=1)
    return results(kit)


def early(start: int, end: int, value: str, *replaces: int) -> Result:
    """Return an early result of the key a."""
    return Result("a", start, end, value, False, replaces)


def test_each_update_is_told_and_then_the_final_result() -> None:
    """A hopping window tells each window that a record has changed, in the order of their starts."""
    assert run(Hopping("w", 10, 5, emit="update", **texts()), (7, "1"), (9, "2"), (15, "3")) == [
        early(0, 10, "1"),
        early(5, 15, "1"),
        early(0, 10, "1+2"),
        early(5, 15, "1+2"),
        early(10, 20, "3"),
        early(15, 25, "3"),
        Result("a", 0, 10, "1+2"),
        Result("a", 5, 15, "1+2"),
    ]


def test_a_session_that_takes_others_in_says_which() -> None:
    """Early results of sessions that are one now no longer hold: the result of both names them."""
    window = Session("w", 10, merge=lambda a, b: a + b, grace_ms=50, emit="update", **texts())
    assert run(window, (0, "1"), (20, "2"), (10, "3"), (-5, "4"), (100, "5")) == [
        early(0, 1, "1"),
        early(20, 21, "2"),
        early(0, 21, "1+2+3", 20),
        early(-5, 21, "1+2+3+4", 0),
        early(100, 101, "5"),
        Result("a", -5, 21, "1+2+3+4"),
    ]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (
            Tumbling("w", 100, emit=Every(30), **texts()),
            [early(0, 100, "1+2+3"), early(0, 100, "1+2+3+4"), Result("a", 0, 100, "1+2+3+4")],
        ),
        (
            Session("w", 100, merge=lambda a, b: a + b, emit=Every(30), **texts()),
            [early(1, 36, "1+2+3"), early(1, 96, "1+2+3+4"), Result("a", 1, 96, "1+2+3+4")],
        ),
        (
            Sliding("w", 1, emit=Every(50), grace_ms=100, **texts()),
            [
                *(early(s, s + 2, t) for s, t in [(0, "1"), (28, "2"), (34, "3")]),
                *(Result("a", s, s + 2, t) for s, t in [(0, "1"), (28, "2"), (34, "3"), (94, "4")]),
            ],
        ),
    ],
)
def test_results_come_every_so_often_if_there_is_something_new(
    window: WindowStore[str, list[str]], expected: list[Result]
) -> None:
    """A result comes when time has passed a multiple, with the window's content; none where the final one follows."""
    found = run(window, (1, "1"), (29, "2"), (35, "3"), (95, "4"), (1_000, "end"))
    assert [result for result in found if result.value != "end"] == expected


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (
            Tumbling("w", 100, grace_ms=200, emit="end", **texts()),
            [early(0, 100, "1+2"), early(0, 100, "1+2+4"), early(100, 200, "3+5")],
        ),
        (
            Tumbling("w", 100, grace_ms=50, emit="end", **texts()),
            [early(0, 100, "1+2"), early(0, 100, "1+2+4"), Result("a", 0, 100, "1+2+4"), early(100, 200, "3+5")],
        ),
        (
            Tumbling("w", 100, emit="end", **texts()),
            [Result("a", 0, 100, "1+2"), Result("a", 100, 200, "3+5")],
        ),
        (
            Hopping("w", 100, 50, grace_ms=50, emit="end", **texts()),
            [
                early(-50, 50, "1"),
                Result("a", -50, 50, "1"),  # at 100, when the next one ends
                early(0, 100, "1+2"),
                early(0, 100, "1+2+4"),
                Result("a", 0, 100, "1+2+4"),
                early(50, 150, "2+3+5"),
                Result("a", 50, 150, "2+3+5"),
                early(100, 200, "3+5"),
            ],
        ),
        (
            Session("w", 30, merge=lambda a, b: a + b, grace_ms=200, emit="end", **texts()),
            [early(0, 1, "1"), early(60, 61, "2"), early(0, 61, "1+2+4", 60), early(110, 141, "3+5")],
        ),
        (
            Sliding("w", 20, grace_ms=200, emit="end", **texts()),
            [
                *(early(s, s + 21, t) for s, t in [(-20, "1"), (40, "2"), (10, "4"), (90, "3"), (120, "5")]),
                Result("a", -20, 1, "1"),
            ],
        ),
    ],
)
def test_a_result_comes_at_the_end_and_with_each_late_record(
    window: WindowStore[str, list[str]], expected: list[Result]
) -> None:
    """Within the grace, as Flink's allowed lateness has it; the final result comes behind it in any case."""
    found = run(window, (0, "1"), (60, "2"), (110, "3"), (30, "4"), (140, "5"), (210, "end"))
    assert [result for result in found if "end" not in result.value] == expected


def test_what_is_sent_early_carries_the_time_at_which_it_is_sent() -> None:
    """An early result has the record's time or that of its moment, a final one the last ms of its window."""
    for emit, times in (("update", [1, 29, 99]), (Every(30), [30, 99])):
        kit = Kit(job_of(Tumbling("w", 100, emit=emit, **texts())))  # type: ignore[arg-type]  # of a loop's literals
        for key, timestamp in (("a", 1), ("a", 29), ("b", 50), ("b", 100)):
            kit.feed(lines, key, "", timestamp=timestamp)
        kit.run()
        assert [record.timestamp for record in kit.outputs(results_topic) if record.key == "a"] == times


def test_late_records_go_where_the_task_sends_them_and_are_counted() -> None:
    """``update`` says that a record is late; the task sends it to a topic of its own."""
    kit = Kit(job_of(Hopping("w", 10, 5, **texts())))
    for timestamp, text in ((7, "1"), (12, "2"), (3, "late"), (8, "in the newer window")):
        kit.feed(lines, "a", text, timestamp=timestamp)
    kit.feed(lines, "a", "end", timestamp=100)
    kit.run()
    assert kit.pairs(late_topic) == [("a", "late")]
    assert [r.value for r in results(kit)] == ["1", "1+2+in the newer window", "2"]


FOR_EVER = (1 << 63) - 1  # Java's Long.MAX_VALUE


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: Hopping("w", 5, 0, utf8, int64), "size_ms = 5, advance_ms = 0, grace_ms = 0: need size_ms >= 1"),
        (lambda: Hopping("w", 5, 6, utf8, int64), "records between two windows would be in none"),
        (lambda: Sliding("w", 0, utf8, int64), "need difference_ms >= 1, grace_ms >= 0"),
        (
            lambda: Hopping("w", 5, 1, utf8, int64, grace_ms=FOR_EVER),
            r"grace_ms = 9223372036854775807: .*\(2\*\*60, for",
        ),
        (
            lambda: Session("w", FOR_EVER, utf8, int64, max),
            "window 'w': gap_ms = 9223372036854775807: need an int of at",
        ),
        (lambda: Session("w", 0, utf8, int64, max), "need gap_ms >= 1, grace_ms >= 0"),
        (lambda: Session("w", 1, utf8, int64, max, grace_ms=-1), "need gap_ms >= 1, grace_ms >= 0"),
        (lambda: Tumbling("w", 1, utf8, int64, emit="early"), "need 'final', 'update', 'end' or Every"),  # type: ignore[arg-type]  # that is the test
        (lambda: Tumbling("w", 1, utf8, int64, emit=Every(0)), "need 'final', 'update', 'end' or Every"),
    ],
)
def test_declarations_that_make_no_windows_are_refused(declare: Any, text: str) -> None:
    """With the values, where they are declared."""
    with pytest.raises(ConfigError, match=text):
        declare()


def test_a_task_with_windows_has_on_window() -> None:
    """The error names the kind that the task declares."""

    class Silent(Task):
        source = Input(lines)
        window = Session("w", 1, utf8, int64, max)

        def process(self, record: Record[str, str]) -> None:
            """Do nothing."""

    with pytest.raises(GraphError, match=r"declares a SessionWindow and has no on_window\(self, window\)"):
        Job("silent", stages=[Silent])


# --- Late records to an output ---


class Aside(Task):
    """Counts by the minute, and sends late records aside without a line for it."""

    source = Input(lines)
    late = Output(late_topic)
    minutes = Tumbling("minutes", 60, grace_ms=5, late_to=late, **texts())
    hops = Hopping("hops", 60, 30, **texts())
    ticks = Timers()

    def process(self, record: Record[str, str]) -> None:
        """Update both; a timer updates one of them, too, and no record is in process then."""
        self.minutes.update(record.key, record.timestamp, lambda seen: [*(seen or ()), record.value])
        self.hops.update(record.key, record.timestamp, lambda seen: [*(seen or ()), record.value])
        self.ticks.schedule(record.timestamp + 1, record.key)

    def on_timer(self, timer: Timer) -> None:
        """Come too late."""
        self.minutes.update(timer.key, 0, lambda seen: [*(seen or ()), "tick"])

    def on_window(self, window: Window[str, list[str]]) -> None:
        """Do nothing."""


class Behind(Task):
    """Reads what was late, as any other stream."""

    source = Input(late_topic)
    out = Output(results_topic)

    def process(self, record: Record[str, str]) -> None:
        """Send it on with its time."""
        self.out.send(record.key, {"late": record.value, "at": record.timestamp, "headers": len(record.headers)})


def feed_late(kit: Kit) -> None:
    """Feed two late records among others."""
    for timestamp, key, text in (
        (1, "a", "1"),
        (70, "a", "2"),
        (2, "b", "late"),
        (59, "c", "late too"),
        (90, "a", "3"),
    ):
        kit.feed(lines, key, text, timestamp=timestamp, headers=[("from", b"here")], partition=0)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("errors", ["fail", "drop"])
def test_late_records_go_to_an_output_as_they_came(mode: Mode, errors: Errors) -> None:
    """With key, value, time and headers, each once, through a crash behind each step; also where errors are passed."""

    def fed() -> Kit:
        own = type("Own", (Aside,), {"name": "aside", "source": Input(lines, errors=errors)})
        kit = Kit(Job("asides", stages=[own], mode=mode))
        feed_late(kit)
        return kit

    kit = fed()
    kit.run()
    found = [(r.key, r.value, r.timestamp, r.headers[:1]) for r in kit.outputs(late_topic)]
    headers = (("from", b"here"),)  # in deterministic mode an output has its number behind them
    assert found == [("b", "late", 2, headers), ("c", "late too", 59, headers)]
    assert fed().check_crashes(at_most=20) >= 8


def test_late_records_are_a_stream_of_the_job() -> None:
    """Another stage reads them: they are an output like any other."""
    kit = Kit(Job("asides", stages=[Aside, Behind]))
    feed_late(kit)
    kit.run(crashes=2, seed=3)
    assert [(key, v["late"], v["at"]) for key, v in kit.pairs(results_topic)] == [
        ("b", "late", 2),
        ("c", "late too", 59),
    ]


def test_an_output_that_is_not_of_the_task_is_refused() -> None:
    """And a task that takes records in batches: the window cannot know which of them is late."""
    other = Tumbling("w", 60, late_to=Output(late_topic), **texts())
    with pytest.raises(GraphError, match=r"window 'w': late_to=.* is no output of this task: declare it in the class"):
        Job("late", stages=[type("T", (Aside,), {"w": other})])
    with pytest.raises(
        GraphError, match=r"window 'minutes' has late_to=, and process_batch takes many records at once"
    ):
        Job("late", stages=[type("T", (Aside,), {"process": None, "process_batch": lambda _self, _records: None})])
