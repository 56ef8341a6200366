"""Reads and writes of a record in flight. Other records do not see its writes before its turn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from grete.execution.calls.answer import Answer
from grete.stores.overlay.overlay_store import KeyAndValue, OverlayStore, merged

Place = tuple[int, bytes]  # store id, key


class Effects:
    """The effects of one run of a record's code: writes, reads with their times, calls, and what its turn is to do.

    ``error``: by which it has ended.
    """

    __slots__ = ("answers", "draws", "error", "later", "reads", "scans", "times", "writes")

    def __init__(self, draws: int) -> None:
        """``draws``: where the record's count of random numbers begins (D3)."""
        self.writes: dict[Place, bytes | None] = {}  # None: deleted
        self.reads: dict[Place, int] = {}  # → how many records had had their turn
        self.scans: list[tuple[int, bytes, bytes | None, int]] = []  # store, start, end, as of reads
        self.times: set[int] = set()  # event times that it has seen
        self.later: list[Callable[[], None]] = []
        self.draws = draws
        self.answers: list[Answer] = []  # of its calls
        self.error: Exception | None = None


class Draws(Protocol):
    """The counter of a task's random numbers: its context in deterministic mode."""

    calls: int


class NoDraws:
    """Counts nothing that matters."""

    calls = 0


class Flight(Protocol):
    """The records in flight, as the stores of a task see them."""

    current: Effects | None  # of the record whose code runs; None: what is done is done at once
    turns: int  # how many records have had their turn

    def changed(self, place: Place) -> None:
        """Note that an entry has changed now."""


class IsolatedStore:
    """A store of a task with records in flight: each sees its own writes, above those of the records before it."""

    def __init__(self, store: int, base: OverlayStore, flight: Flight) -> None:
        self._id, self._base, self._flight = store, base, flight

    def get(self, key: bytes) -> bytes | None:
        """Return the value or None."""
        effects = self._flight.current
        if effects is not None:
            place = self._id, key
            if place in effects.writes:
                return effects.writes[place]
            effects.reads.setdefault(place, self._flight.turns)
        return self._base.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None, in the order of ``keys``."""
        effects = self._flight.current
        if effects is None:
            return self._base.get_many(keys)
        own = {key: effects.writes[self._id, key] for key in keys if (self._id, key) in effects.writes}
        below = [key for key in keys if key not in own]
        for key in below:
            effects.reads.setdefault((self._id, key), self._flight.turns)
        found = own | dict(zip(below, self._base.get_many(below), strict=True))
        return [found[key] for key in keys]

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value. Raises Halted when the open write batch has outgrown its bound (A9)."""
        if self._flight.current is not None:
            self._flight.current.writes[self._id, key] = value
        else:
            self._flight.changed((self._id, key))
            self._base.put(key, value)

    def delete(self, key: bytes) -> None:
        """Delete the key; nothing happens if there is none. Raises Halted as ``put`` does."""
        if self._flight.current is not None:
            self._flight.current.writes[self._id, key] = None
        else:
            self._flight.changed((self._id, key))
            self._base.delete(key)

    def scan(self, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False) -> Iterator[KeyAndValue]:
        """Return (key, value) with start <= key < end in key order, or from the last on, as of the call."""
        effects, rows = self._flight.current, self._base.scan(start, end, reverse=reverse)
        if effects is None:
            return rows
        effects.scans.append((self._id, start, end, self._flight.turns))
        own = [(key, value) for (store, key), value in effects.writes.items() if store == self._id]
        written = sorted((item for item in own if _within(item[0], start, end)), reverse=reverse)
        return merged(written, rows, reverse=reverse) if written else rows


def deferred(flight: Flight, function: Callable[..., None], copied: Callable[[Any], Any]) -> Callable[..., None]:
    """Return ``function`` deferred to the turn of the record whose code calls it; ``copied``: its arguments now."""

    def do(*args: Any, **kwargs: Any) -> None:
        if flight.current is None:
            function(*args, **kwargs)
        else:
            kept, named = copied((args, kwargs))
            flight.current.later.append(lambda: function(*kept, **named))

    return do


def conflicts(effects: Effects, changed: Mapping[Place, int], event_time: int) -> bool:
    """Return whether something that a record has read was changed behind its back; ``changed``: place → as of turn."""
    if effects.times - {event_time}:
        return True
    if not changed:
        return False
    if any(changed.get(place, -1) >= turn for place, turn in effects.reads.items()):
        return True
    return any(
        at >= turn and store == place[0] and _within(place[1], start, end)
        for store, start, end, turn in effects.scans
        for place, at in changed.items()
    )


def _within(key: bytes, start: bytes, end: bytes | None) -> bool:
    return key >= start and (end is None or key < end)
