"""Calendar windows whose keys have time zones of their own."""

from datetime import datetime
from typing import Any

import pytest

from grete import CalendarWindow, Input, Job, Key, Output, Record, Task, Topic, Window, int64, json, utf8
from grete.api.stateful.calendar_window import zone_of
from grete.errors import TaskError
from grete.testing import Kit
from tests.windows.jobs import HOUR, ms

places = Topic("places", key=Key(utf8, utf8), value=int64)  # name, time zone
days_of = Topic("days-of", key=utf8, value=json(list[Any]))


class ByPlace(Task):
    """Counts by the day of each key's own zone."""

    source = Input(places, errors="drop")
    days = CalendarWindow(
        "days", "day", lambda place: place[1], key=Key(utf8, utf8), value=int64, emit="end", grace_ms=HOUR
    )
    out = Output(days_of)

    def process(self, record: Record[tuple[str, str], int]) -> None:
        """Add."""
        self.days.update(record.key, record.timestamp, lambda n: (n or 0) + record.value)

    def on_window(self, window: Window[tuple[str, str], int]) -> None:
        """Tell the day by its date."""
        day = self.days.date_of(window).isoformat()
        self.out.send(window.key[0], [day, (window.end - window.start) // HOUR, window.value, window.final])


def test_each_key_has_the_days_of_its_zone() -> None:
    """Some begin together and end apart; each is told at its end, then finally, and no crash changes that."""
    begin = ms("UTC", 2026, 3, 28, 23)
    at = {  # where clocks are set forward, set back, or neither; the second and the third begin with the first
        "Europe/Berlin": 23,
        "Africa/Algiers": 24,
        "Africa/Tunis": 24,
        "America/New_York": 24,
    }

    def fed() -> Kit:
        kit = Kit(Job("by-place", stages=[ByPlace]))
        for hour in range(30):
            for zone in at:
                kit.feed(places, (zone[-3:], zone), 1, timestamp=begin + hour * HOUR, partition=0)
        kit.feed(places, ("bad", "Nowhere/Else"), 1, timestamp=ms("UTC", 2026, 3, 28), partition=0)
        kit.feed(places, ("end", "UTC"), 1, timestamp=ms("UTC", 2026, 4, 1), partition=0)
        return kit

    kit = fed()
    kit.run()
    found = [(key, *value) for key, value in kit.pairs(days_of)]
    for zone, hours in at.items():
        of_day = [each for each in found if each[:2] == (zone[-3:], "2026-03-29")]
        counted = sum(
            datetime.fromtimestamp(begin // 1_000 + hour * 3_600, zone_of(zone)).day == 29 for hour in range(30)
        )
        assert of_day == [(zone[-3:], "2026-03-29", hours, counted, final) for final in (False, True)]
    assert {each[0] for each in found} == {zone[-3:] for zone in at}
    assert fed().check_crashes(at_most=12) == 12


def test_a_zone_by_key_that_is_none_is_the_records_error() -> None:
    """The error has the key."""
    kit = Kit(Job("by-place", stages=[type("Strict", (ByPlace,), {"source": Input(places)})]))
    kit.feed(places, ("bad", "Nowhere/Else"), 1, timestamp=0)
    with pytest.raises(TaskError, match=r"window 'days', key .*bad.*: zone = 'Nowhere/Else': need a time zone by its"):
        kit.run()
