"""The state of a task at every place that is not settled: who has written and read what, in the order of places."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping

from framework.core.speculative.messages import Place

Value = bytes | None


class Versions:
    """The committed state, and above it one version for each write of a bundle that is not settled."""

    def __init__(self, committed: dict[bytes, bytes]) -> None:
        self.committed = committed
        self._writers: dict[bytes, list[Place]] = {}
        self._values: dict[bytes, list[Value]] = {}  # beside the writers
        self._readers: dict[bytes, list[Place]] = {}

    def read(self, key: bytes, place: Place) -> Value:
        """Return the value that a bundle at ``place`` finds: of the last write before it."""
        writers = self._writers.get(key)
        if writers and (before := bisect_left(writers, place)):
            return self._values[key][before - 1]
        return self.committed.get(key)

    def replace(
        self,
        place: Place,
        before: tuple[Iterable[bytes], Mapping[bytes, Value]],
        after: tuple[Iterable[bytes], Mapping[bytes, Value]],
    ) -> set[Place]:
        """Put other reads and writes of a bundle in the place of those before; return who has read what changed."""
        (old_reads, old_writes), (reads, writes) = before, after
        stale: set[Place] = set()
        for key in old_reads:
            _remove(self._readers, key, place)
        for key in old_writes.keys() | writes.keys():
            under = self.read(key, place)
            was, now = old_writes.get(key, under), writes.get(key, under)
            self._write(key, place, key in old_writes, writes)
            if was != now:
                stale.update(self._readers_of(key, place))
        for key in reads:
            insort(self._readers.setdefault(key, []), place)
        return stale

    def settle(self, place: Place, reads: Iterable[bytes], writes: Mapping[bytes, Value]) -> None:
        """Move what the lowest bundle has written into the committed state."""
        for key in reads:
            _remove(self._readers, key, place)
        for key, value in writes.items():
            self._write(key, place, True, {})
            if value is None:
                self.committed.pop(key, None)
            else:
                self.committed[key] = value

    def _readers_of(self, key: bytes, place: Place) -> list[Place]:
        """Return who finds the version of ``place``: up to the next writer, which reads before it writes."""
        readers, writers = self._readers.get(key, []), self._writers.get(key, [])
        later = bisect_right(writers, place)
        end = len(readers) if later == len(writers) else bisect_right(readers, writers[later])
        return readers[bisect_right(readers, place) : end]

    def _write(self, key: bytes, place: Place, written: bool, writes: Mapping[bytes, Value]) -> None:
        writers, values = self._writers.setdefault(key, []), self._values.setdefault(key, [])
        at = bisect_left(writers, place)
        if written and key in writes:
            values[at] = writes[key]
        elif written:
            del writers[at], values[at]
            if not writers:
                del self._writers[key], self._values[key]
        else:
            writers.insert(at, place)
            values.insert(at, writes[key])

    @property
    def empty(self) -> bool:
        """Whether nothing is held above the committed state."""
        return not (self._writers or self._readers or self._values)


def _remove(index: dict[bytes, list[Place]], key: bytes, place: Place) -> None:
    places = index[key]
    del places[bisect_left(places, place)]
    if not places:
        del index[key]


class View:
    """The state as the code of one bundle sees it, and what it reads and writes."""

    def __init__(self, versions: Versions, place: Place) -> None:
        self.place = place
        self.reads: set[bytes] = set()
        self.writes: dict[bytes, Value] = {}
        self._versions = versions

    def get(self, key: bytes) -> Value:
        """Return the value or None."""
        if key in self.writes:
            return self.writes[key]
        self.reads.add(key)
        return self._versions.read(key, self.place)

    def put(self, key: bytes, value: Value) -> None:
        """Write a value; None deletes it."""
        self.writes[key] = value


class SettledView:
    """The state for code that runs in its order, so that it is never taken back."""

    reads = frozenset[bytes]()
    writes: Mapping[bytes, Value] = {}

    def __init__(self, committed: dict[bytes, bytes], place: Place) -> None:
        self.place = place
        self._committed = committed

    def get(self, key: bytes) -> Value:
        """Return the value or None."""
        return self._committed.get(key)

    def put(self, key: bytes, value: Value) -> None:
        """Write a value; None deletes it."""
        if value is None:
            self._committed.pop(key, None)
        else:
            self._committed[key] = value
