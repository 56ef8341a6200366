"""An index in memory of the times at which keys have rows in a store by key and time, in place of a scan."""

from bisect import bisect_left, insort
from collections.abc import Callable
from itertools import islice
from typing import Any, Generic, TypeVar

from grete.api.serdes.serde import Serde, functions_of
from grete.api.stateful.declaration import TIME_MAX, TIME_MIN
from grete.api.store import Store

K = TypeVar("K")

KEYS_MAX = 10_000  # in memory, of each store: with a time or two each about 3 MB
TIMES_MAX = 64  # of a key in memory: from there on a scan costs no more than to get the rows one by one


class KeyTimes(Generic[K]):
    """The times of some keys. The caller reports each row after it was put or deleted.

    The store is the truth. A rollback makes another of these; after an ``undo`` of the task's writes it begins again.
    """

    def __init__(self, store: Store[tuple[K, int], Any], key: Serde[K], undone: Callable[[], int]) -> None:
        """``undone`` returns how often writes of the task were taken back."""
        self._store, self._encode = store, functions_of(key)[0]
        self._undone, self._seen = undone, undone()
        self._times: dict[bytes, list[int]] = {}

    def of(self, key: K) -> list[int] | None:
        """Return the times of the rows of a key, in order; they change with it. None: there are many, scan the store.

        Raises what the key's serde raises.
        """
        if self._seen != (undone := self._undone()):
            self._times.clear()
            self._seen = undone
        raw = self._encode(key)
        times = self._times.get(raw)
        if times is None:
            rows = islice(self._store.range((key, TIME_MIN), (key, TIME_MAX)), TIMES_MAX + 1)
            times = [time for (_, time), _ in rows]
            if len(self._times) == KEYS_MAX:
                del self._times[next(iter(self._times))]
            self._times[raw] = times
        return times if len(times) <= TIMES_MAX else None

    def put(self, key: K, time: int) -> None:
        """Note that the store has a row there."""
        times = self._times.get(self._encode(key))
        if times is not None and len(times) <= TIMES_MAX and not has(times, time):
            insort(times, time)

    def delete(self, key: K, time: int) -> None:
        """Note that the store has no row there."""
        raw = self._encode(key)
        times = self._times.get(raw)
        if times is not None and len(times) > TIMES_MAX:
            del self._times[raw]  # there may be few now
        elif times is not None:
            times.remove(time)


def has(times: list[int], time: int) -> bool:
    """Tell whether a sorted list has a time."""
    index = bisect_left(times, time)
    return index < len(times) and times[index] == time
