"""The recommendations as a batch computation: plain dicts over all input, in rounds; it knows nothing of a stream.

In a round each user moves at most once and each place gets at most one forecast. Who comes or leaves before the
forecast of the round is for the stream to choose, and its output shows it (``as_shown``). All else follows from it.
"""

from collections.abc import Mapping, Sequence

from tests.support.recommendations import GOOD, Forecast, News, Stay, advice

Told = Sequence[tuple[str, News]]  # place, what was told


class Batch:
    """The state after the rounds so far. ``guests``: place → user → (visit, answered)."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.stays: dict[str, Stay] = {}
        self.table: dict[str, Forecast] = {}
        self.guests: dict[str, dict[str, tuple[int, bool]]] = {}

    def round(self, moves: Mapping[str, str], forecasts: Mapping[str, Forecast], shown: Told) -> dict[str, list[News]]:
        """Return the news of each place in this round, in order, if moves came as ``shown`` says."""
        comes: dict[str, list[str]] = {}
        leaves: dict[str, list[str]] = {}
        for user, place in moves.items():
            last = self.stays.get(user)
            if last is not None:
                leaves.setdefault(last.place, []).append(user)
            comes.setdefault(place, []).append(user)
        visits = {user: 1 if user not in self.stays else self.stays[user].visit + 1 for user in moves}
        told = {
            place: self._at(place, comes.get(place, []), leaves.get(place, []), visits, forecasts.get(place), shown)
            for place in {*comes, *leaves, *forecasts}
        }
        self.stays |= {user: Stay(place, visits[user]) for user, place in moves.items()}
        return {place: news for place, news in told.items() if news}

    def _at(
        self,
        place: str,
        comes: Sequence[str],
        leaves: Sequence[str],
        visits: Mapping[str, int],
        forecast: Forecast | None,
        shown: Told,
    ) -> list[News]:
        """Return the news of one place."""
        heard = [each for at, each in shown if at == place]
        guests = self.guests.setdefault(place, {})
        told: list[News] = []
        gone = [user for user in leaves if (user, guests[user][0]) not in {(each.user, each.visit) for each in heard}]
        staying = {user: guests[user] for user in leaves if user not in gone}  # until the forecast has come
        for user in gone:
            del guests[user]
        waiting = {user: visit for user, (visit, answered) in guests.items() if not answered}
        early, late = as_shown(comes, visits, waiting, heard)
        self._welcome(place, early, visits, told)
        if forecast is not None:
            self._update(place, forecast, told)
        for user, guest in staying.items():
            if guests[user][0] == guest[0]:
                del guests[user]
        self._welcome(place, late, visits, told)
        return told

    def _welcome(self, place: str, users: Sequence[str], visits: Mapping[str, int], told: list[News]) -> None:
        known = self.table.get(place)
        for user in users:
            self.guests[place][user] = visits[user], known is not None
            if known is not None:
                told.append(News(user, visits[user], advice(known)))

    def _update(self, place: str, forecast: Forecast, told: list[News]) -> None:
        known = self.table.get(place)
        if known is not None and known.issued > forecast.issued:
            return
        self.table[place] = forecast
        told.append(News("", 0, forecast.weather))
        for user, (visit, answered) in sorted(self.guests[place].items()):
            if not answered:
                told.append(News(user, visit, advice(forecast)))
                self.guests[place][user] = visit, True
            elif known is not None and known.weather in GOOD and forecast.weather not in GOOD:
                told.append(News(user, visit, f"warning: {forecast.weather}"))


def as_shown(
    comes: Sequence[str], visits: Mapping[str, int], waiting: Mapping[str, int], heard: Sequence[News]
) -> tuple[list[str], list[str]]:
    """Return those who came before the forecast of the round, and those after it, each in the order of the answers.

    ``waiting``: user → visit that the forecast answers, ``heard``: of this place. Who is answered among these had come.
    """
    at = {(each.user, each.visit): number for number, each in reversed(list(enumerate(heard)))}
    update = at.get(("", 0), len(heard))
    last = max((at.get(guest, update) for guest in waiting.items()), default=update)
    came = sorted(comes, key=lambda user: at.get((user, visits[user]), -1))  # -1: no answer, it waits
    late = [user for user in came if at.get((user, visits[user]), -1) > last]
    return [user for user in came if user not in late], late
