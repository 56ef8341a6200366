"""Windows by the calendar of a time zone: where they lie, through crashes, by newer rules; and what is refused."""

import random
import zoneinfo
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import Every, Input, Job, Task, TumblingWindow, Window, utf8
from grete.api.jobs.definition import changes_of_job, define
from grete.api.jobs.graph import RESERVED_STORES
from grete.api.stateful.calendar_window import Calendar, Unit, Weekday, zone_of
from grete.api.stateful.windows import WindowStore
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError, TaskError
from grete.execution.task_code.binding import bound
from grete.state.write.moving.record_keys import record_keys
from grete.testing import Kit
from tests.windows.jobs import HOUR, CalendarWindow, Result, job_of, late_topic, lines, ms, results, texts

BERLIN = "Europe/Berlin"
AT = datetime(2026, 11, 15)  # noqa: DTZ001  # local: in Havana releases of the database differ about it
ODD = ["America/St_Johns", "America/Havana", "America/Sao_Paulo", "Pacific/Apia", "America/Toronto", "Africa/Monrovia"]


def calendar(unit: Unit, zone: str, week_begins: Weekday = "monday") -> Calendar:
    """Return the calendar of a zone."""
    return Calendar(unit, zone_of(zone), week_begins)


def window(unit: Unit = "day", zone: Any = BERLIN, **more: Any) -> CalendarWindow[str, list[str]]:
    """Return the declaration of a window of texts."""
    return CalendarWindow("w", unit, zone, **texts(), **more)


# --- Where they lie ---


def test_the_rules_are_not_those_of_the_machine() -> None:
    """They come from the package, also where the machine has a database, or none."""
    by_package = zone_of("America/Havana")
    zoneinfo.reset_tzpath(to=[])
    try:
        assert zoneinfo.ZoneInfo.no_cache("America/Havana").utcoffset(AT) == by_package.utcoffset(AT)
    finally:
        zoneinfo.reset_tzpath()


@pytest.mark.parametrize(
    ("unit", "zone", "at", "begins", "hours"),
    [
        ("day", BERLIN, (2026, 3, 28, 12), (2026, 3, 28), 24),
        ("day", BERLIN, (2026, 3, 29, 12), (2026, 3, 29), 23),  # clocks are set forward at 2:00
        ("day", BERLIN, (2026, 10, 25, 2, 30), (2026, 10, 25), 25),  # and back at 3:00
        ("week", BERLIN, (2026, 3, 29, 23), (2026, 3, 23), 7 * 24 - 1),
        ("week", BERLIN, (2026, 10, 25, 23), (2026, 10, 19), 7 * 24 + 1),
        ("month", BERLIN, (2026, 2, 28, 23), (2026, 2, 1), 28 * 24),
        ("month", BERLIN, (2024, 2, 29, 23), (2024, 2, 1), 29 * 24),
        ("month", BERLIN, (2026, 10, 31, 23), (2026, 10, 1), 31 * 24 + 1),
        ("month", "Asia/Kathmandu", (2026, 12, 31, 23, 59), (2026, 12, 1), 31 * 24),
        ("day", "America/Sao_Paulo", (2017, 10, 15, 12), (2017, 10, 15, 1), 23),  # there was no midnight
        ("day", "America/Toronto", (1919, 3, 31, 12), (1919, 3, 31, 0, 30), 23.5),  # from 23:30 to 0:30
        ("day", "America/Havana", (2024, 11, 3, 12), (2024, 11, 3), 25),  # midnight came twice
        ("day", "Pacific/Apia", (2011, 12, 29, 12), (2011, 12, 29), 24),  # there was no 30 December
        ("day", "Pacific/Apia", (2011, 12, 31, 12), (2011, 12, 31), 24),
        ("day", "UTC", (1969, 12, 31, 23), (1969, 12, 31), 24),
        ("day", BERLIN, (2480, 7, 1, 12), (2480, 7, 1), 24),
    ],
)
def test_periods_begin_at_local_midnight(
    unit: Unit, zone: str, at: tuple[int, ...], begins: tuple[int, ...], hours: float
) -> None:
    """Days have 23 to 25 hours, months 28 to 31 days; a day without midnight begins with its first moment."""
    start, end = calendar(unit, zone).span(ms(zone, *at))
    assert (start, end) == (ms(zone, *begins), ms(zone, *begins) + round(hours * HOUR))


def test_a_day_does_not_end_twice_where_its_date_comes_again() -> None:
    """In St. John's clocks went from 0:01 back to 23:01: the next day begins at the first midnight."""
    days = calendar("day", "America/St_Johns")
    midnight = ms("America/St_Johns", 2006, 10, 29)
    for at in (midnight, midnight + 30 * 60_000, midnight + HOUR, midnight + 24 * HOUR):
        assert days.span(at) == (midnight, midnight + 25 * HOUR)
    assert days.span(midnight - 1) == (midnight - 24 * HOUR, midnight)


@pytest.mark.parametrize(("begins", "day"), [("monday", 23), ("wednesday", 25), ("saturday", 28), ("sunday", 29)])
def test_a_week_begins_with_its_first_day(begins: Weekday, day: int) -> None:
    """29 March 2026 is a Sunday."""
    start, end = calendar("week", BERLIN, begins).span(ms(BERLIN, 2026, 3, 29, 12))
    assert start == ms(BERLIN, 2026, 3, day)
    assert end == ms(BERLIN, *(datetime(2026, 3, day) + timedelta(days=7)).timetuple()[:3])  # noqa: DTZ001  # local, as ms has it


@given(
    st.sampled_from(["day", "week", "month"]),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca", *ODD]),
    st.integers(ms("UTC", 1900, 1, 1), ms("UTC", 2100, 1, 1)),
)
def test_each_moment_is_in_one_period(unit: Unit, zone: str, at: int) -> None:
    """Periods follow one another without a gap, and their first moments have dates of their own."""
    found = calendar(unit, zone)
    start, end = found.span(at)
    assert start <= at < end
    assert found.span(start) == found.span(end - 1) == (start, end)
    assert found.span(end)[0] == end
    assert found.span(start - 1)[1] == start
    assert end - start <= {"day": 26, "week": 170, "month": 745}[unit] * HOUR
    second, there = start // 1_000, zone_of(zone)
    begins, before = (datetime.fromtimestamp(each, there).date() for each in (second, second - 1))
    assert before < begins
    assert unit != "week" or begins.weekday() == 0
    assert unit != "month" or begins.day == 1


# --- In a job ---


def recount(unit: str, zone: str, fed: list[tuple[str, int, str]]) -> list[Result]:
    """Return the results of all records (key, timestamp, text), by a plain computation over local dates."""
    panes = defaultdict[tuple[str, int, int], list[str]](list)
    for key, timestamp, text in fed:
        day = datetime.fromtimestamp(timestamp / 1_000, zone_of(zone)).date()
        first = {"day": day, "week": day - timedelta(days=day.weekday()), "month": day.replace(day=1)}[unit]
        behind = first + timedelta(days={"day": 1, "week": 7, "month": 31}[unit])
        behind = behind.replace(day=1) if unit == "month" else behind
        bounds = (ms(zone, *each.timetuple()[:3]) for each in (first, behind))
        panes[key, *bounds].append(text)  # type: ignore[index]  # two bounds
    return sorted(Result(key, start, end, "+".join(sorted(found))) for (key, start, end), found in panes.items())


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("unit", ["day", "week", "month"])
def test_windows_are_those_of_a_recount(unit: Unit, mode: Mode) -> None:
    """Two partitions over both changes of the clocks, out of order within the grace, four crashes."""
    kit = Kit(job_of(window(unit, grace_ms=6 * HOUR), mode), partitions=2)
    rand, fed = random.Random(unit), list[tuple[str, int, str]]()
    for partition in range(2):
        for begin in (ms(BERLIN, 2026, 3, 27), ms(BERLIN, 2026, 10, 24)):
            at = begin
            while at < begin + 5 * 24 * HOUR:
                at += rand.choice((0, 1, HOUR // 2, 3 * HOUR))
                fed.append((f"{partition}{rand.choice('ab')}", at - rand.randint(0, 6 * HOUR), f"{len(fed):04}"))
                kit.feed(lines, *fed[-1][::2], timestamp=fed[-1][1], partition=partition)
        kit.feed(lines, "end", "", timestamp=ms(BERLIN, 2027, 6, 1), partition=partition)
    kit.run(crashes=4, seed=1)
    found = [each._replace(value="+".join(sorted(each.value.split("+")))) for each in results(kit)]
    assert sorted(each for each in found if each.key != "end") == recount(unit, BERLIN, fed)
    assert kit.pairs(late_topic) == []


def test_no_crash_changes_a_day_of_25_hours() -> None:
    """A crash behind each step, with early results and late records."""

    def fed() -> Kit:
        kit = Kit(job_of(window(emit=Every(6 * HOUR), grace_ms=HOUR)))
        for hour in (-1, 3, 2, 20, 24, 25, 24, 27, 0, 30):
            kit.feed(lines, "a", str(hour), timestamp=ms(BERLIN, 2026, 10, 25) + hour * HOUR)
        return kit

    kit = fed()
    kit.run()
    begin = ms(BERLIN, 2026, 10, 25)
    assert [each for each in results(kit) if each.final] == [
        Result("a", begin - 24 * HOUR, begin, "-1"),
        Result("a", begin, begin + 25 * HOUR, "3+2+20+24+24"),
    ]
    assert kit.pairs(late_topic) == [("a", "0")]
    assert fed().check_crashes() > 20


@pytest.mark.parametrize(("newer", "hours"), [("UTC", 25), ("Europe/Helsinki", 23)])
def test_an_open_window_ends_by_newer_rules(newer: str, hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment gets a tzdata by which the day ends an hour later, or earlier: each record has one result."""
    begin = ms(BERLIN, 2026, 1, 10)
    declared = window()
    kit = Kit(job_of(declared))
    kit.feed(lines, "a", "1", timestamp=begin + 2 * HOUR)
    kit.run()
    rules = calendar("day", newer)
    monkeypatch.setitem(declared.calendars, BERLIN, bound(rules, span=lambda at: _moved(rules, begin, at)))
    kit.crash_all()
    for hour in (22, 23, 24, 26):
        kit.feed(lines, "a", str(hour), timestamp=begin + hour * HOUR)
    kit.feed(lines, "a", "end", timestamp=begin + 60 * HOUR)
    kit.run()
    inside = [str(hour) for hour in (22, 23, 24) if hour < hours]
    outside = [str(hour) for hour in (22, 23, 24, 26) if hour >= hours]
    assert results(kit) == [
        Result("a", begin, begin + hours * HOUR, "+".join(["1", *inside])),
        Result("a", begin + hours * HOUR, begin + (24 + hours) * HOUR, "+".join(outside)),
    ]


def _moved(rules: Calendar, begin: int, at: int) -> tuple[int, int]:
    """Return the period by rules that came after the window that begins at ``begin``, and have moved its end."""
    _, end = Calendar.span(rules, begin + 12 * HOUR)
    return (begin, end) if begin <= at < end else Calendar.span(rules, at)


# --- What is kept, and refused ---


class Days(Task):
    """Has a day."""

    source = Input(lines)
    days = window()

    def process(self, record: Any) -> None:
        """Do nothing."""

    def on_window(self, window: Window[str, list[str]]) -> None:
        """Do nothing."""


def job_with(declared: WindowStore[str, list[str]]) -> Job:
    """Return the job with another window of the same name."""
    return Job("days", stages=[type("Days", (Days,), {"days": declared, "name": "days"})])


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (window(zone="Europe/Paris"), "window days/w: zone was Europe/Berlin and is Europe/Paris, so open windows"),
        (window("month"), "window days/w: unit was day and is month"),
        (window(zone=str), "window days/w: zone was Europe/Berlin and is by key"),
        (window(grace_ms=1), "window days/w: grace_ms was 0 and is 1"),
        (
            TumblingWindow("w", 24 * HOUR, **texts()),
            "window days/w was calendar (unit day, zone Europe/Berlin, grace_ms 0) and is tumbling (size_ms 86400000",
        ),
    ],
)
def test_another_zone_or_unit_is_refused(declared: WindowStore[str, list[str]], text: str) -> None:
    """As other sizes are."""
    before = define(job_with(window()), {})
    assert changes_of_job(before, job_with(window(emit="update"))) == []
    (change,) = changes_of_job(before, job_with(declared))
    assert change.what.startswith(text)


def test_another_first_day_of_the_week_is_refused() -> None:
    """The one that is not given is Monday."""
    before = define(job_with(window("week")), {})
    assert changes_of_job(before, job_with(window("week", week_begins="monday"))) == []
    (change,) = changes_of_job(before, job_with(window("week", week_begins="sunday")))
    assert change.what.startswith("window days/w: week_begins was monday and is sunday")


def test_weeks_in_place_of_days_are_refused() -> None:
    """Days have no first day of the week to compare."""
    changes = changes_of_job(define(job_with(window()), {}), job_with(window("week")))
    assert [change.what.partition(", so")[0] for change in changes] == [
        "window days/w: unit was day and is week",
        "window days/w: week_begins was not given and is monday",
    ]


def test_a_rescale_gives_the_timer_of_a_day_to_each_task() -> None:
    """It is for all keys; that of an early result goes with its key."""
    (stage,) = job_with(window()).stages
    keys = record_keys(stage)
    declared = stage.windows["days"]
    assert isinstance(declared, CalendarWindow)
    start = ms(BERLIN, 2026, 3, 29)
    in_order = (start + (1 << 63)).to_bytes(8, "big")

    def of_timer(key: str) -> bytes | None:
        return keys.of(RESERVED_STORES["_timers"], in_order + b"\1w" + key.encode())

    assert of_timer(declared.timer_of(start)) is None
    assert of_timer("e" + (in_order + b"ann").decode("latin-1")) == b"ann"
    pane = declared.panes.key.encode((start, "ann"))
    assert keys.of(stage.store_ids()["w"], pane) == b"ann"


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: window(zone="Europe/Berln"), "zone = 'Europe/Berln': need a time zone .* 'Europe/Berlin' is one"),
        (lambda: window(zone="../zones"), "zone = '../zones': need a time zone by its name"),
        (lambda: window(zone=b"UTC"), "zone = b'UTC': need a time zone by its name"),
        (lambda: window("year"), "unit = 'year': need one of 'day', 'week', 'month'"),  # type: ignore[arg-type]  # likewise
        (lambda: window("week", week_begins="mon"), "week_begins = 'mon': need a day from 'monday' to 'sunday'"),
        (lambda: window("day", week_begins="monday"), "unit = 'day', week_begins = 'monday': .* and unit 'week'"),
        (lambda: window(grace_ms=-1), "grace_ms = -1: need grace_ms >= 0"),
    ],
)
def test_declarations_that_make_no_windows_are_refused(declare: Any, text: str) -> None:
    """With the values, where they are declared."""
    with pytest.raises(ConfigError, match=f"window 'w': .*{text}"):
        declare()


def test_a_time_that_no_calendar_has_is_an_error_of_its_record() -> None:
    """Microseconds taken for milliseconds: the task says so, with the value."""
    kit = Kit(job_of(window()))
    kit.feed(lines, "a", "1", timestamp=1_700_000_000_000_000)
    with pytest.raises(TaskError, match=r"offset 0.*timestamp 1700000000000000: .* give milliseconds since 1970"):
        kit.run()
    assert calendar("month", "UTC").span(ms("UTC", 5, 6, 1))[0] == ms("UTC", 5, 6, 1)
    late = datetime(9987, 1, 31, tzinfo=UTC)
    assert calendar("month", "Pacific/Apia").span(int(late.timestamp()) * 1_000)[1] > 0


def test_keys_of_timers_are_the_keys_of_starts() -> None:
    """A window before 1970, too, closes by its own timer."""
    kit = Kit(job_of(window(zone="UTC")))
    for at, text in ((-3 * HOUR, "before"), (HOUR, "behind"), (72 * HOUR, "end")):
        kit.feed(lines, "ä", text, timestamp=at)
    kit.run(crashes=2, seed=2)
    assert [(r.start, r.end, r.value) for r in results(kit)] == [
        (-24 * HOUR, 0, "before"),
        (0, 24 * HOUR, "behind"),
    ]


def test_utf8_is_the_key() -> None:
    """Keys of any bytes are behind the start."""
    assert window().panes.key.decode(window().panes.key.encode((-5, "ä"))) == (-5, "ä")
    assert window().key == utf8
