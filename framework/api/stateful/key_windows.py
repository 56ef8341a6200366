"""Windows that lie where a key's records are: sessions, and sliding windows. All panes of a key are one value.

So a record costs one read and one write, however many panes it changes. Each key has a timer at the next moment at
which one of its panes has something to do; one that has nothing to do any more sets the next.
"""

import struct
from abc import abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from functools import reduce
from operator import itemgetter
from typing import Any, TypeVar

from grete.api.serdes.serde import Codec, Serde, functions_of, in_each_version
from grete.api.stateful.windows import Emit, Window, WindowStore, give_early
from grete.api.store import Store
from grete.api.topics.topic import Errors, Output

K = TypeVar("K")
V = TypeVar("V")
Pane = tuple[int, int, V]  # start, timestamp of the last record, value

_PANE = struct.Struct(">qqI")  # start, last, bytes of the value that follows
_start = itemgetter(0)


@in_each_version
def panes_serde(value: Serde[V]) -> Serde[list[Pane[V]]]:
    """Return the serde of a key's panes, by start."""
    encode_value, decode_value = functions_of(value)

    def encode(panes: list[Pane[V]]) -> bytes:
        parts = []
        for start, last, each in panes:
            raw = encode_value(each)
            parts += [_PANE.pack(start, last, len(raw)), raw]
        return b"".join(parts)

    def decode(data: bytes) -> list[Pane[V]]:
        panes, at = [], 0
        while at < len(data):
            start, last, length = _PANE.unpack_from(data, at)
            at += _PANE.size
            panes.append((start, last, decode_value(data[at : at + length])))
            at += length
        return panes

    return Codec(f"panes({value.name})", (encode, decode), schema=value)


class KeyWindows(WindowStore[K, V]):
    """The base of windows that lie where a key's records are."""

    panes: Store[K, list[Pane[V]]]

    def store(self) -> Store[K, list[Pane[V]]]:
        """As of WindowStore."""
        return Store(self.name, self.key, panes_serde(self.value))

    def _keep(self, key: K, before: list[Pane[V]], panes: list[Pane[V]]) -> None:
        """Write a key's panes, and set its timer if it has none so early."""
        self.panes.put(key, panes)
        now = self.time_for(key)
        due = self._next(panes, now)
        if not before or due < self._next(before, now):
            self._set(key, due)

    def _next(self, panes: list[Pane[V]], now: int) -> int:
        """Return the time at which the next of a key's windows closes; if none is open, all panes are of no use then.

        Panes are sorted by start, and so by when they close.
        """
        index = bisect_right(panes, now, key=self._closes)
        return self._closes(panes[index]) if index < len(panes) else self._gone(panes[-1])

    def _set(self, key: K, due: int) -> None:
        assert self.schedule is not None
        self.schedule(due, "c" + functions_of(self.key)[0](key).decode("latin-1"))

    def close(self, at: int, key: str) -> None:
        """Write first what is left: ``on_window`` may update the key."""
        pane_key = functions_of(self.key)[1](key[1:].encode("latin-1"))
        panes = self.panes.get(pane_key, [])
        left = panes[bisect_right(panes, at, key=self._gone) :]
        if left:
            if len(left) < len(panes):
                self.panes.put(pane_key, left)
            self._set(pane_key, self._next(left, at))
        elif panes:
            self.panes.delete(pane_key)
        closing = slice(*(find(panes, at, key=self._closes) for find in (bisect_left, bisect_right)))
        for pane in panes[closing]:
            end = self._end(pane)
            self.give_due(Window(self.name, pane[0], end, pane_key, pane[2]), end - 1)

    def find(self, start: int, key: K, now: int) -> tuple[int, int, V] | None:
        """As of WindowStore."""
        for pane in self.panes.get(key, []):
            if pane[0] == start and (closes := self._closes(pane)) > now:
                return self._end(pane), closes, pane[2]
        return None

    def windows_in(self, key: K, value: list[Pane[V]]) -> Iterator[Window[K, V]]:
        """As of WindowStore."""
        return (Window(self.name, pane[0], self._end(pane), key, pane[2]) for pane in value)

    @abstractmethod
    def _end(self, pane: Pane[V]) -> int:
        """Return the end of the window."""

    @abstractmethod
    def _closes(self, pane: Pane[V]) -> int:
        """Return the event time at which the window closes."""

    @abstractmethod
    def _gone(self, pane: Pane[V]) -> int:
        """Return the event time from which on no record needs the pane."""


class SessionWindow(KeyWindows[K, V]):
    """Sessions: records of a key that are no more than ``gap_ms`` apart. See WindowStore.

    A window begins with the session's first record and ends 1 ms after its last one. It closes when no record can join
    it any more: once event time is past its last record by more than gap_ms + grace_ms. A record between two sessions
    makes one of them: ``merge(earlier value, later value)`` gives the value that ``update`` changes.
    """

    kind = "session"

    def __init__(
        self,
        name: str,
        gap_ms: int,
        key: Serde[K],
        value: Serde[V],
        merge: Callable[[V, V], V],
        grace_ms: int = 0,
        emit: Emit = "final",
        *,
        late_to: Output[Any, Any] | None = None,
        errors: Errors = "fail",
    ) -> None:
        """Declare the window; it is also a store of this name. Raises ConfigError on a bad gap_ms or grace_ms."""
        super().__init__(name, {"gap_ms": gap_ms}, key, value, grace_ms, emit, late_to=late_to, errors=errors)
        self.gap_ms = gap_ms
        self.merge = merge

    @property
    def held_ms(self) -> int:
        """Return by how much older than event time a final result may be, but for 1 ms."""
        return self.gap_ms + self.grace_ms

    def take(self, key: K, timestamp: int, change: Callable[[V | None], V]) -> bool:
        """Add the record to the open sessions that are near enough, all of which become one."""
        now, gap = self.time_for(key), self.gap_ms
        before = self.panes.get(key, [])
        joined, others = list[Pane[V]](), list[Pane[V]]()
        for pane in before:
            near = pane[0] - gap <= timestamp <= pane[1] + gap and self._closes(pane) > now
            (joined if near else others).append(pane)
        start = min(timestamp, joined[0][0]) if joined else timestamp
        last = max(timestamp, joined[-1][1]) if joined else timestamp
        closes = last + 1 + self.held_ms
        if closes <= now:
            return False
        value = change(reduce(self.merge, (pane[2] for pane in joined)) if joined else None)
        insort(others, (start, last, value), key=_start)
        self._keep(key, before, others)
        if self.emit == "final":
            return True
        told = [each for (each, _, _) in joined if each != start and (self.emit != "end" or each + gap < now)]
        give_early(self, Window(self.name, start, last + 1, key, value, False, (*told,)), timestamp, closes)
        return True

    def _end(self, pane: Pane[V]) -> int:
        return pane[1] + 1

    def _closes(self, pane: Pane[V]) -> int:
        return pane[1] + 1 + self.held_ms

    def _gone(self, pane: Pane[V]) -> int:
        return self._closes(pane)


class SlidingWindow(KeyWindows[K, V]):
    """Windows of all sets of a key's records that lie within ``difference_ms`` of one another. See WindowStore.

    As in Kafka Streams: for each record at t the window [t - difference_ms, t], and [t + 1, t + 1 + difference_ms] if a
    record is in it; both ends belong to the window, so ``end`` is 1 ms later. A record changes each window around it:
    for a dense key, prefer hopping windows.
    """

    kind = "sliding"

    def __init__(
        self,
        name: str,
        difference_ms: int,
        key: Serde[K],
        value: Serde[V],
        grace_ms: int = 0,
        emit: Emit = "final",
        *,
        late_to: Output[Any, Any] | None = None,
        errors: Errors = "fail",
    ) -> None:
        """Declare the window; it is also a store of this name. Raises ConfigError on bad difference_ms or grace_ms."""
        super().__init__(
            name, {"difference_ms": difference_ms}, key, value, grace_ms, emit, late_to=late_to, errors=errors
        )
        self.difference_ms = difference_ms

    def take(self, key: K, timestamp: int, change: Callable[[V | None], V]) -> bool:
        """Change each pane around the record; panes whose windows are closed, too, since later ones begin as copies."""
        now, width = self.time_for(key), self.difference_ms
        if timestamp + width + 1 + self.grace_ms <= now:
            return False
        before = self.panes.get(key, [])
        panes, copied = self._with_new(before, timestamp)
        changed = list[Pane[V]]()
        for index in range(bisect_left(panes, timestamp - width, key=_start), len(panes)):
            start, last, value = panes[index]
            if start > timestamp:
                break
            panes[index] = start, max(last, timestamp), change(value)
            changed.append(panes[index])
        self._keep(key, before, panes)
        if self.emit == "final":
            return True
        for pane in (*changed, *copied):
            if (closes := self._closes(pane)) > now:
                window = Window(self.name, pane[0], self._end(pane), key, pane[2], final=False)
                give_early(self, window, timestamp, closes)
        return True

    def _with_new(self, before: list[Pane[V]], timestamp: int) -> tuple[list[Pane[V]], list[Pane[V]]]:
        """Return the panes with those that a record makes, not changed by it yet; and a copy among them that stays so.

        A pane begins wherever a sliding window gains or loses a record. So the last pane that begins at a place or
        before it has the records of the window there; if its own last record is before that place, there are none.
        """
        starts = [pane[0] for pane in before]
        panes, copied = before.copy(), list[Pane[V]]()

        def at(place: int) -> Pane[V] | None:
            index = bisect_right(starts, place) - 1
            return before[index] if index >= 0 and before[index][1] >= place else None

        def add(start: int, like: Pane[V] | None) -> Pane[V]:
            pane: Pane[V] = (start, timestamp, None) if like is None else (start, like[1], like[2])  # type: ignore[assignment]  # None: until it is changed
            insort(panes, pane, key=_start)
            return pane

        left = timestamp - self.difference_ms
        if left not in starts:
            add(left, at(left))
        previous = at(left - 1)
        if previous is not None and previous[1] + 1 not in (*starts, left):
            add(previous[1] + 1, None)
        following = at(timestamp + 1)
        if following is not None and timestamp + 1 not in starts:
            copied.append(add(timestamp + 1, following))
        return panes, copied

    def _end(self, pane: Pane[V]) -> int:
        return pane[0] + self.difference_ms + 1

    def _closes(self, pane: Pane[V]) -> int:
        return self._end(pane) + self.grace_ms

    def _gone(self, pane: Pane[V]) -> int:
        """Return the end of the pane's use: the oldest record that is not late has its window and one before it."""
        return self._closes(pane) + 2 * self.difference_ms + 1
