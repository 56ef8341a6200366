"""Windows by the calendar of a time zone: days, weeks, months, as people and their bills count them.

The rules of the zones are those of the package tzdata, not of the machine: what runs in the same environment builds the
same windows, on each machine of a job, in a replay and on Spark.
"""

from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any, Literal, TypeVar, get_args
from zoneinfo import ZoneInfo

import tzdata

from grete.api.serdes.serde import Serde
from grete.api.stateful.common_windows import CommonWindows
from grete.api.stateful.windows import EARLY, START, START_SIGN, Emit, Window
from grete.api.topics.topic import Errors, Output
from grete.errors import ConfigError, TaskError
from grete.quoting import key_text

K = TypeVar("K")
V = TypeVar("V")

Unit = Literal["day", "week", "month"]
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAYS: tuple[str, ...] = get_args(Weekday)

_OF_START = "s"  # begins the key of a timer that closes a window
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_FIRST_MS, _LAST_MS = -62_000_000_000_000, 253_000_000_000_000  # in the years 5 and 9987: a calendar has no others


class Calendar:
    """The places in time, in ms since 1970, at which the days, weeks or months of a time zone begin.

    Each begins with the first moment whose date there is its first day, or a later one: where clocks are set forward at
    midnight, at 1:00. Where they are set back over midnight, the date goes back for a while, and the day does not.
    """

    def __init__(self, unit: Unit, zone: ZoneInfo, week_begins: Weekday = "monday") -> None:
        self._unit, self._zone, self._weekday = unit, zone, WEEKDAYS.index(week_begins)
        self._begin = lru_cache(maxsize=1024)(self._uncached_begin)  # asked for with each record
        self._last = 0, 0

    def span(self, at: int) -> tuple[int, int]:
        """Return (start, end) of the period that ``at`` is in. Raises TaskError: no calendar has such a time."""
        if self._last[0] <= at < self._last[1]:
            return self._last
        if not _FIRST_MS <= at <= _LAST_MS:
            raise TaskError(
                f"timestamp {at}: a calendar window takes {_FIRST_MS} to {_LAST_MS}, the years 5 to 9987: give "
                "milliseconds since 1970, not microseconds"
            )
        day = self._first_day(self._date(at // 1_000))
        start, end = self._begin(day), self._begin(following := self._next(day))
        while at >= end:  # clocks were set back over midnight
            start, end = end, self._begin(following := self._next(following))
        self._last = start, end
        return start, end

    def date_at(self, at: int) -> date:
        """Return the date of a moment there."""
        return self._date(at // 1_000)

    def _date(self, second: int) -> date:
        return datetime.fromtimestamp(second, self._zone).date()

    def _first_day(self, day: date) -> date:
        if self._unit == "month":
            return day.replace(day=1)
        return day - timedelta(days=(day.weekday() - self._weekday) % 7 if self._unit == "week" else 0)

    def _next(self, day: date) -> date:
        if self._unit == "month":
            return (day + timedelta(days=31)).replace(day=1)
        return day + timedelta(days=7 if self._unit == "week" else 1)

    def _uncached_begin(self, day: date) -> int:
        midnight = datetime.combine(day, time(), self._zone)  # the first one, if it comes twice
        second = (midnight - _EPOCH) // _SECOND
        if datetime.fromtimestamp(second, self._zone).replace(tzinfo=None) != midnight.replace(tzinfo=None):
            earlier = (midnight.replace(fold=1) - _EPOCH) // _SECOND  # by the clocks as they are set forward
            skipped = range(earlier, second + 1)
            second = skipped[bisect_left(skipped, day, key=self._date)]
        return second * 1_000


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone of the package tzdata. Raises ValueError: it has none of this name."""
    names = files(tzdata).joinpath("zones").read_text("utf-8").split()
    if name not in names:
        like = get_close_matches(str(name), names, n=1)
        meant = f"; {like[0]!r} is one" if like else ""
        raise ValueError(
            f"zone = {name!r}: need a time zone by its name, such as 'Europe/Berlin' or 'UTC', of those in tzdata "
            f"{tzdata.IANA_VERSION}{meant}"
        )
    with files(tzdata).joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


class CalendarWindow(CommonWindows[K, V]):
    """Days, weeks or months of a time zone, from local midnight to local midnight: a record is in one. See WindowStore.

    A day has 23 or 25 hours where clocks change, a month 28 to 31 days. ``zone`` is a name such as "Europe/Berlin" or
    "UTC", or a function of the window's key that gives one. Its rules are those of the package tzdata that is
    installed; a window that is open when a newer one comes ends by the new rules. ``week_begins``: "monday", unless
    given.
    """

    kind = "calendar"

    def __init__(
        self,
        name: str,
        unit: Unit,
        zone: str | Callable[[K], str],
        key: Serde[K],
        value: Serde[V],
        grace_ms: int = 0,
        emit: Emit = "final",
        *,
        week_begins: Weekday | None = None,
        late_to: Output[Any, Any] | None = None,
        errors: Errors = "fail",
    ) -> None:
        """Declare the window; it is also a store of this name.

        Raises ConfigError on an unknown unit, zone or weekday, and on a bad grace_ms.
        """
        where = f"window {name!r}"
        if unit not in get_args(Unit):
            raise ConfigError(f"{where}: unit = {unit!r}: need one of {', '.join(map(repr, get_args(Unit)))}")
        if week_begins is not None and (unit != "week" or week_begins not in WEEKDAYS):
            raise ConfigError(
                f"{where}: unit = {unit!r}, week_begins = {week_begins!r}: need a day from 'monday' to 'sunday', and "
                "unit 'week'"
            )
        super().__init__(name, {}, key, value, grace_ms, emit, late_to=late_to, errors=errors)
        first: Weekday = week_begins or "monday"
        self.sizes |= {"unit": unit, "zone": "by key" if callable(zone) else zone}
        self.sizes |= {"week_begins": first} if unit == "week" else {}
        self.calendars = dict[str, Calendar]()  # by zone
        self._make = partial(Calendar, unit, week_begins=first)
        self._zone_of_key: Callable[[K], str] = zone if callable(zone) else lambda _: zone
        if not callable(zone):
            try:
                self.calendars[zone] = self._make(zone_of(zone))
            except ValueError as error:
                raise ConfigError(f"{where}: {error}") from error

    def date_of(self, window: Window[K, V]) -> date:
        """Return the first day of a window, as its zone has it. Raises TaskError: the key's zone is unknown."""
        return self._calendar(window.key).date_at(window.start)

    def _calendar(self, key: K) -> Calendar:
        name = self._zone_of_key(key)
        if (found := self.calendars.get(name)) is None:
            try:
                found = self.calendars[name] = self._make(zone_of(name))
            except ValueError as error:  # the key's mistake, not the job's
                raise TaskError(f"window {self.name!r}, key {key_text(key)}: {error}") from error
        return found

    def starts(self, key: K, timestamp: int) -> tuple[int]:
        """As of CommonWindows. Raises TaskError: no calendar has such a time, or the key's zone is unknown."""
        return (self._calendar(key).span(timestamp)[0],)

    def end_of(self, key: K, start: int) -> int:
        """As of CommonWindows. Raises TaskError as ``starts`` does."""
        return self._calendar(key).span(start)[1]

    def timer_of(self, start: int) -> str:
        """Return a key with the start in it: windows that begin together may end apart, by zone or by newer rules."""
        return _OF_START + START.pack(start + START_SIGN).decode("latin-1")

    @staticmethod
    def key_of_timer(key: str) -> bytes | None:
        """As of Stateful."""
        return CommonWindows.key_of_timer(key) if key.startswith(EARLY) else None

    def close(self, at: int, key: str) -> None:
        """Give what closes of the windows that begin where the timer says; wait for the end of the others.

        Raises TaskError: the zone of a key is unknown to the tzdata that is installed now.
        """
        start = START.unpack(key[len(_OF_START) :].encode("latin-1"))[0] - START_SIGN
        open_ends = set[int]()
        for pane, value in self.panes.prefix((start, None)):
            end = self.end_of(pane[1], start)  # type: ignore[arg-type]  # only a prefix has no key
            if final := at >= end + self.grace_ms:
                self.give_one(pane, end, value, final=final)
                continue
            open_ends.add(end)
            if self.emit == "end" and at == end:
                self.give_one(pane, end, value, final=final)
        for end in sorted(open_ends):
            self.set_timers(start, end, at)
