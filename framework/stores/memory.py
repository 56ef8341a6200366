"""The state store of the test kit and the simulator: sorted dicts. What must survive a crash lives in a MemoryDisk."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from grete.errors import ConfigError
from grete.ports import Write
from grete.stores.sorted_view import SortedView


@dataclass(slots=True)
class MemoryDisk:
    """The data that survives a crash: hand it to the next MemoryStore of the task."""

    names: dict[int, str] = field(default_factory=dict)
    stores: dict[int, SortedView] = field(default_factory=dict)
    changelog_position: bytes | None = None


class MemoryStore:
    """ports.StateStore in memory."""

    def __init__(self, stores: Mapping[int, str], disk: MemoryDisk | None = None) -> None:
        """Open what ``disk`` holds (nothing: a new one). Raises ConfigError if a store id had another name before."""
        self.disk = disk if disk is not None else MemoryDisk()
        for store, name in stores.items():
            check_same_name(store, self.disk.names.setdefault(store, name), name)
            self.disk.stores.setdefault(store, SortedView({}))

    def changelog_position(self) -> bytes | None:
        """Return the changelog position written last, or None."""
        return self.disk.changelog_position

    def get(self, store: int, key: bytes) -> bytes | None:
        """Return the value or None. Raises ConfigError for an unknown store id."""
        return self._view(store).values.get(key)

    def get_many(self, store: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None, in the order of ``keys``."""
        return [*map(self._view(store).values.get, keys)]

    def scan(
        self, store: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with start <= key < end in key order (``reverse``: from the last on), as of the call."""
        rows = self._view(store).scan(start, end, reverse=reverse)
        return cast("Iterator[tuple[bytes, bytes]]", rows)  # no None is ever stored here

    def last_key(self, store: int) -> bytes | None:
        """Return the last key in key order, or None."""
        return self._view(store).last()

    def write(self, writes: Iterable[Write], changelog_position: bytes | None = None) -> None:
        """Apply all writes and the changelog position.

        Raises ConfigError for an unknown store id, with nothing applied.
        """
        for view, key, value in [(self._view(store), key, value) for store, key, value in writes]:
            view.touch(key, gone=value is None)
            if value is None:
                view.values.pop(key, None)
            else:
                view.values[key] = value
        if changelog_position is not None:
            self.disk.changelog_position = changelog_position

    def load(self, store: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Apply one data message's columns to one store (restore). Raises ValueError for unequal lengths."""
        self.write([(store, key, value) for key, value in zip(keys, values, strict=True)])

    def flush(self) -> None:
        """Do nothing: what is loaded is there."""

    def wipe(self) -> None:
        """Empty all stores and the changelog position."""
        self.disk.stores = {store: SortedView({}) for store in self.disk.stores}
        self.disk.changelog_position = None

    def close(self) -> None:
        """Do nothing: the disk stays."""

    def _view(self, store: int) -> SortedView:
        try:
            return self.disk.stores[store]
        except KeyError:
            raise unknown_store(store, self.disk.names) from None


def unknown_store(store: int, names: Mapping[int, str]) -> ConfigError:
    """Return the error for a store id that the job does not declare."""
    return ConfigError(
        f"store id {store} is not one of this task's stores {dict(names)}: a store must not be removed from a job"
    )


def check_same_name(store: int, before: str, now: str) -> None:
    """Raise ConfigError if a store id now means another store: its data would be read as the other's."""
    if before != now:
        raise ConfigError(
            f"store id {store} is {before!r} on disk and {now!r} in the job: "
            "stores keep their ids: put its name back; a new store may be declared anywhere"
        )
