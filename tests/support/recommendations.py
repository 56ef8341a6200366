"""Recommends going out or not: location updates of users joined with a table of weather forecasts.

Locations are keyed by user, forecasts by place. ByPlace sends each visit to where the forecast of its place is, where
Recommend keeps them in a store: that is all a table is. A visit to a place without a forecast waits for one.
"""

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, json, utf8

WAIT_MS = 3_600_000  # of event time
END = "\0"  # ends the place in a key of the store ``waiting``


class Forecast(msgspec.Struct, frozen=True):
    """What the weather will be at a place, as foretold at ``issued`` (ms)."""

    weather: str
    issued: int


locations = Topic("locations", key=utf8, value=utf8)  # user → place
forecasts = Topic("forecasts", key=utf8, value=json(Forecast))  # place → forecast
visits = Topic("visits", key=utf8, value=utf8)  # place → user
recommendations = Topic("recommendations", key=utf8, value=utf8)  # user → what to do


class ByPlace(Task):
    """Sends each location update to the partition of its place."""

    updates = Input(locations)
    out = Output(visits)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.value, record.key)


class Recommend(Task):
    """Joins visits with the table of forecasts."""

    arrivals = Input(visits)
    updates = Input(forecasts)
    table = Store("forecasts", key=utf8, value=json(Forecast))  # by place
    waiting = Store("waiting", key=utf8, value=int64)  # place + END + user → when the visit began
    patience = Timers()
    out = Output(recommendations)

    def process(self, record: Record[str, str | Forecast]) -> None:
        place, value = record.key, record.value
        known = self.table.get(place)
        if isinstance(value, Forecast):
            if known is None or known.issued <= value.issued:  # else it comes late, and is no news
                self.table.put(place, value)
                for key, _ in self.waiting.prefix(place + END):
                    self.out.send(key.removeprefix(place + END), advice(place, value))
                    self.waiting.delete(key)
        elif known is not None:
            self.out.send(value, advice(place, known))
        else:
            self.waiting.put(place + END + value, record.timestamp)
            self.patience.schedule(record.timestamp + WAIT_MS, place + END + value)

    def on_timer(self, timer: Timer) -> None:
        began = self.waiting.get(timer.key)
        if began is not None and began + WAIT_MS <= timer.at:  # a visit that began later has a timer of its own
            place, _, user = timer.key.partition(END)
            self.out.send(user, f"{place}: no forecast")
            self.waiting.delete(timer.key)


def advice(place: str, forecast: Forecast) -> str:
    """Return the text of a recommendation."""
    good = forecast.weather in {"sunny", "cloudy"}
    return f"{place}: great weather for outdoors" if good else f"{place}: {forecast.weather}, better stay inside"


job = Job("recommendations", stages=[ByPlace, Recommend], partitions=2)
