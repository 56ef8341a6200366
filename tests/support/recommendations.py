"""Recommends going out or not, as the talk has it: location updates of users joined with weather forecasts.

Locations are keyed by user, forecasts by place. ByPlace sends each visit to where the forecast of its place is, where
Recommend keeps forecasts and visits in stores. Its output has recommendations, warnings that follow when the forecast
of a visited place turns bad, and the forecast updates themselves: a reader who sees "great weather" and then the update
"tornadoes" must also see a warning, and sees each of them once.
"""

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, json, utf8

WAIT_MS = 3_600_000  # of event time
END = "\0"  # ends the place in a key of the store ``here``
GOOD = {"sunny", "cloudy"}


class Forecast(msgspec.Struct, frozen=True):
    """The weather of a place, as foretold at ``issued`` (ms)."""

    weather: str
    issued: int


class Stay(msgspec.Struct, frozen=True):
    """The place of a user. ``visit`` numbers the visits of a user, from 1."""

    place: str
    visit: int


class Move(msgspec.Struct, frozen=True):
    """A user comes to a place, or leaves it."""

    user: str
    visit: int
    comes: bool


class Guest(msgspec.Struct, frozen=True):
    """A visit: its number, when it began (ms), and whether there was an answer."""

    visit: int
    began: int
    answered: bool


class News(msgspec.Struct, frozen=True):
    """An output. ``user``, ``visit``: whom it is for; "" and 0 for a forecast update."""

    user: str
    visit: int
    text: str


locations = Topic("locations", key=utf8, value=utf8)  # user → place
forecasts = Topic("forecasts", key=utf8, value=json(Forecast))  # place → forecast
moves = Topic("moves", key=utf8, value=json(Move))  # place → who comes or leaves
news = Topic("news", key=utf8, value=json(News))  # place → what to tell


class ByPlace(Task):
    """Sends each location update to the partition of its place, and a departure to that of the place before."""

    updates = Input(locations)
    stays = Store("stays", key=utf8, value=json(Stay))  # by user
    out = Output(moves)

    def process(self, record: Record[str, str]) -> None:
        user, place = record.key, record.value
        last = self.stays.get(user)
        if last is not None:
            self.out.send(last.place, Move(user, last.visit, comes=False))
        stay = Stay(place, 1 if last is None else last.visit + 1)
        self.stays.put(user, stay)
        self.out.send(place, Move(user, stay.visit, comes=True))


class Recommend(Task):
    """Joins visits with the table of forecasts."""

    arrivals = Input(moves)
    updates = Input(forecasts)
    table = Store("forecasts", key=utf8, value=json(Forecast))  # by place
    here = Store("here", key=utf8, value=json(Guest))  # by place + END + user
    patience = Timers()
    out = Output(news)

    def process(self, record: Record[str, Move | Forecast]) -> None:
        if isinstance(record.value, Forecast):
            self.update(record.key, record.value)
        elif record.value.comes:
            self.welcome(record.key, record.value, record.timestamp)
        else:
            guest = self.here.get(record.key + END + record.value.user)
            if guest is not None and guest.visit == record.value.visit:
                self.here.delete(record.key + END + record.value.user)

    def update(self, place: str, forecast: Forecast) -> None:
        """Tell of a forecast, answer the visits that waited for one, warn the others if it has turned bad."""
        known = self.table.get(place)
        if known is not None and known.issued > forecast.issued:
            return  # it comes late, and is no news
        self.table.put(place, forecast)
        self.out.send(place, News("", 0, forecast.weather))
        for key, guest in self.here.prefix(place + END):
            user = key.removeprefix(place + END)
            if not guest.answered:
                self.answer(place, user, guest, advice(forecast))
            elif known is not None and known.weather in GOOD and forecast.weather not in GOOD:
                self.out.send(place, News(user, guest.visit, f"warning: {forecast.weather}"))

    def welcome(self, place: str, move: Move, at_ms: int) -> None:
        """Answer a visit, or let it wait for a forecast."""
        guest, known = Guest(move.visit, at_ms, answered=False), self.table.get(place)
        self.here.put(place + END + move.user, guest)
        if known is not None:
            self.answer(place, move.user, guest, advice(known))
        else:
            self.patience.schedule(at_ms + WAIT_MS, place + END + move.user)

    def answer(self, place: str, user: str, guest: Guest, text: str) -> None:
        """Answer a visit."""
        self.out.send(place, News(user, guest.visit, text))
        self.here.put(place + END + user, Guest(guest.visit, guest.began, answered=True))

    def on_timer(self, timer: Timer) -> None:
        guest = self.here.get(timer.key)
        if guest is not None and not guest.answered and guest.began + WAIT_MS <= timer.at:  # a later visit has its own
            place, _, user = timer.key.partition(END)
            self.answer(place, user, guest, "no forecast")


def advice(forecast: Forecast) -> str:
    """Return the text of a recommendation."""
    return "great weather for outdoors" if forecast.weather in GOOD else f"{forecast.weather}, better stay inside"


job = Job("recommendations", stages=[ByPlace, Recommend], partitions=2)
