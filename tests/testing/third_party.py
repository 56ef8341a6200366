"""Back ends as somebody else would write them, as small as they can be: a store in a dict, a sink in a list."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from grete.api.sinks.sink import Entry, Owner
from grete.errors import ConfigError
from grete.ports import Write


class Disk:
    """The data that survives a store."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, bytes], bytes] = {}
        self.names: dict[int, str] = {}
        self.changelog_position: bytes | None = None


class DictStore:
    """A state store: grete.ports.StateStore."""

    def __init__(self, names: Mapping[int, str], disk: Disk) -> None:
        for number, name in names.items():
            before = disk.names.setdefault(number, name)
            if before != name:
                raise ConfigError(f"store id {number} is '{before}' on disk and '{name}' in the job: put it back")
        self._names, self._disk = names, disk

    def changelog_position(self) -> bytes | None:
        return self._disk.changelog_position

    def get(self, store: int, key: bytes) -> bytes | None:
        self._check(store)
        return self._disk.rows.get((store, key))

    def get_many(self, store: int, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(store, key) for key in keys]

    def scan(
        self, store: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._check(store)
        rows = sorted(self._disk.rows.items(), reverse=reverse)
        return ((k, v) for (s, k), v in rows if s == store and start <= k and (end is None or k < end))

    def last_key(self, store: int) -> bytes | None:
        self._check(store)
        return max((k for s, k in self._disk.rows if s == store), default=None)

    def write(self, writes: Iterable[Write], changelog_position: bytes | None = None) -> None:
        before = dict(self._disk.rows)
        try:
            for store, key, value in writes:
                self._check(store)
                self._set(store, key, value)
        except BaseException:
            self._disk.rows = before
            raise
        self._disk.changelog_position = changelog_position or self._disk.changelog_position

    def load(self, store: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self.write([(store, key, value) for key, value in zip(keys, values, strict=True)])

    def flush(self) -> None:
        pass

    def wipe(self) -> None:
        self._disk.rows.clear()
        self._disk.changelog_position = None

    def close(self) -> None:
        pass

    def _set(self, store: int, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._disk.rows.pop((store, key), None)
        else:
            self._disk.rows[store, key] = value

    def _check(self, store: int) -> None:
        if store not in self._names:
            raise ConfigError(f"store id {store} is not declared: there are {sorted(self._names.values())}")


class Place:
    """The place of a sink's rows."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []
        self.applied: dict[Owner, int] = {}  # whose outputs → checkpoint id

    def content(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for task, number in self.rows:
            found.setdefault(task, []).append(number)
        return found


class ListSink:
    """A sink: grete.api.sinks.sink.Sink."""

    name = "a list"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._task, self._id = Owner("", "", ""), -1
        self._draft: list[tuple[str, int]] = []

    def open(self, owner: Owner) -> int | None:
        self._task, self._draft = owner, []
        return self._place.applied.get(owner)

    def begin(self, checkpoint_id: int) -> bool:
        self._id, self._draft = checkpoint_id, []
        return checkpoint_id > self._place.applied.get(self._task, -1)

    def write(self, entries: Sequence[Entry]) -> None:
        rows = [json.loads(value) for _, value in entries]
        self._draft += [(row["task"], row["number"]) for row in rows]

    def commit(self) -> None:
        if self._id <= self._place.applied.get(self._task, -1):
            return  # another instance has done it meanwhile
        self._place.rows += self._draft
        self._place.applied[self._task] = self._id

    def close(self) -> None:
        self._draft = []
