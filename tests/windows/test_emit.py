"""Early results, late records, and declarations that are refused."""

from typing import Any

import pytest

from grete import Every, Input, Job, Record, Task, int64, utf8
from grete.api.stateful.windows import WindowStore
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
        (lambda: Tumbling("w", 1, utf8, int64, emit="early"), "need 'final', 'update' or Every"),  # type: ignore[arg-type]  # that is the test
        (lambda: Tumbling("w", 1, utf8, int64, emit=Every(0)), "need 'final', 'update' or Every"),
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
