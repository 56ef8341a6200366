"""A table that also knows what its rows were: the store behind a join of a stream with a table as of the record's time.

The versions of a key are one after another in the store, by time. Those that no time within the history needs
are deleted by a timer of their key.
"""

from bisect import bisect_right
from collections.abc import Callable
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar, overload

from grete.api.serdes.serde import Codec, Serde, functions_of, in_each_version, key_serde
from grete.api.stateful.declaration import TIME_MAX, TIME_MIN, TIMED_KEY, KeySlice, Stateful, timed_key_serde
from grete.api.stateful.key_times import KeyTimes
from grete.api.stateful.spans import check_spans
from grete.api.store import Store
from grete.errors import ConfigError

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_STEPS = 4  # versions are kept for up to this part of the history longer: more of them are more timers
_ROWS = 1_000  # versions that are in memory while they are deleted


class VersionedStore(Stateful, Generic[K, V]):
    """A class attribute of a task: a map that knows what the value of a key was at any time of its history.

    The history is ``retention_ms`` long and ends at the task's event time (see Timers). A version is valid from its
    timestamp on until that of the next one. Versions may come in any order of their timestamps; of two with the same
    one the last counts.
    """

    what = "versioned store"
    kind = "versioned store"
    key_at: ClassVar[KeySlice] = TIMED_KEY

    def __init__(self, name: str, key: Serde[K], value: Serde[V], retention_ms: int) -> None:
        """Declare the store. Raises ConfigError on a ``retention_ms`` below 0."""
        super().__init__(name)
        check_spans(f"versioned store {name!r}", retention_ms=retention_ms)
        if retention_ms < 0:
            raise ConfigError(f"versioned store {name!r}: retention_ms = {retention_ms}: need 0 or more")
        self.key = key_serde(key)
        self.serdes: dict[str, Serde[Any]] = {"key": self.key, "value": value}
        self.sizes = dict[str, int]()  # none is pinned: a longer history begins with what is there
        self.retention_ms = retention_ms
        self.versions: Store[tuple[K, int], V | None] = Store(name, timed_key_serde(self.key), _version_serde(value))
        self._step = max(1, retention_ms // _STEPS)
        self._times: KeyTimes[K]  # on a running task

    def begin(self, undone: Callable[[], int]) -> None:
        """As of Stateful."""
        self._times = KeyTimes(self.versions, self.key, undone)

    @property
    def tells(self) -> bool:
        """As of Stateful."""
        return False

    def put(self, key: K, timestamp: int, value: V | None) -> None:
        """Set the value from ``timestamp`` (ms) on, until that of the next version; None: the key is gone from then on.

        Raises TaskError if the store is not part of a running task, SerdeError on a bad key or value.
        """
        self.check_runs()
        if value is None or self._last(key, TIME_MAX) is not None:
            self._set_timer(key, max(timestamp, self.time_for(key)))
        self.versions.put((key, timestamp), value)
        self._times.put(key, timestamp)

    @overload
    def get(self, key: K, timestamp: int | None = None) -> V | None: ...

    @overload
    def get(self, key: K, timestamp: int | None, default: D) -> V | D: ...

    def get(self, key: K, timestamp: int | None = None, default: object = None) -> object:
        """Return the value as of ``timestamp`` (ms), by default the newest; ``default`` if the key was not there.

        Before the history only what has not changed since is known: otherwise ``default``. Raises TaskError if the
        store is not part of a running task, SerdeError on a bad key.
        """
        self.check_runs()
        found = self._last(key, TIME_MAX if timestamp is None else timestamp)
        if found is None or found[1] is None:
            return default
        if timestamp is not None and timestamp < self.time_for(key) - self.retention_ms:
            newest = self._last(key, TIME_MAX)
            return found[1] if newest is not None and newest[0] == found[0] else default
        return found[1]

    def fire(self, at: int, key: str) -> None:
        """As of Stateful: delete the versions before the last one that is as old as the history, and that if gone."""
        store_key: K = functions_of(self.key)[1](key.encode("latin-1"))
        begin = at - self.retention_ms
        last = self._last(store_key, begin)
        if last is not None:
            first, end = TIME_MIN, last[0] + 1 if last[1] is None else last[0]
            while rows := list(islice(self.versions.range((store_key, first), (store_key, end)), _ROWS)):
                first = rows[-1][0][1] + 1
                for place, _ in rows:
                    self.versions.delete(place)
                    self._times.delete(*place)
        newer = self._newer(store_key, begin)
        if newer is not None:  # when that is as old as the history, what is before it can go
            self._set_timer(store_key, newer)

    def _last(self, key: K, timestamp: int) -> tuple[int, V | None] | None:
        """Return the (time, value) of the newest version that is not newer than ``timestamp``."""
        times = self._times.of(key)
        if times is not None:
            index = bisect_right(times, timestamp)
            return (times[index - 1], self.versions.get((key, times[index - 1]))) if index else None
        versions = self.versions.range((key, TIME_MIN), (key, min(timestamp + 1, TIME_MAX)), reverse=True)
        found = next(versions, None)
        return None if found is None else (found[0][1], found[1])

    def _newer(self, key: K, timestamp: int) -> int | None:
        """Return the time of the oldest version that is newer than ``timestamp``."""
        times = self._times.of(key)
        if times is not None:
            return next(iter(times[bisect_right(times, timestamp) :]), None)
        row = next(self.versions.range((key, timestamp + 1), (key, TIME_MAX)), None)
        return None if row is None else row[0][1]

    def _set_timer(self, key: K, timestamp: int) -> None:
        at = timestamp + self.retention_ms
        assert self.schedule is not None
        self.schedule(-(-at // self._step) * self._step, functions_of(self.key)[0](key).decode("latin-1"))


@in_each_version
def _version_serde(value: Serde[V]) -> Serde[V | None]:
    """Return the serde of a version: no bytes if the key is gone."""
    encode_value, decode_value = functions_of(value)

    def encode(version: V | None) -> bytes:
        return b"" if version is None else b"=" + encode_value(version)

    def decode(data: bytes) -> V | None:
        return decode_value(data[1:]) if data else None

    return Codec(f"version({value.name})", (encode, decode), schema=value)
