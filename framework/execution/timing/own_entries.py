"""The runtime's own entries in a task's state: event time, floors, turns, calls, and the pins of its stores."""

import struct
from collections.abc import Iterable

from grete.api.jobs.graph import FIRST_USER_STORE, StageGraph
from grete.errors import ConfigError
from grete.execution.timing.floors import Floors
from grete.execution.timing.reserved_stores import META, STREAM_TIME, pin_key
from grete.stores.overlay.overlay import Overlay
from grete.stores.overlay.overlay_store import OverlayStore

_INT64 = struct.Struct(">q")


class OwnEntries:
    """Entries of the reserved store META, as they were read or written last. What has not changed stays as it is."""

    def __init__(self, overlay: Overlay) -> None:
        self._meta = overlay.store(META)
        self._known: dict[bytes, bytes] = {}
        self.floors = Floors(self._meta)

    def reload(self) -> None:
        """Forget what was read, and read the floors: the state went back."""
        self._known = {}
        self.floors.load()

    def get(self, key: bytes) -> bytes | None:
        """Read an entry."""
        raw = self._meta.get(key)
        if raw is not None:
            self._known[key] = raw
        return raw

    def number(self, key: bytes, default: int) -> int:
        """Read a number; ``default``: the state has none."""
        raw = self.get(key)
        return default if raw is None else int(_INT64.unpack(raw)[0])

    def save_event_time(self, now: int) -> None:
        """Write the task's event time, in ms, and drop the floors that it has passed."""
        self.save([(STREAM_TIME, now)])
        self.floors.drop(now)

    def save(self, entries: Iterable[tuple[bytes, bytes | int | None]]) -> None:
        """Write what differs from the state; None: the entry is gone."""
        for key, value in entries:
            if value is None:
                if self.get(key) is not None:
                    self._meta.delete(key)
                    del self._known[key]
                continue
            raw = _INT64.pack(value) if isinstance(value, int) else value
            if self._known.get(key) != raw:
                self._meta.put(key, raw)
                self._known[key] = raw


class StorePins:
    """Store ids of one task, pinned in META: another declaration would read other data. ``where`` is the task."""

    def __init__(self, stage: StageGraph, where: str, meta: OverlayStore) -> None:
        self._stage, self._where, self._meta = stage.name, where, meta
        self._names = {i: name for name, i in stage.store_ids().items() if i >= FIRST_USER_STORE}

    def check(self) -> None:
        """Raise ConfigError if a store id meant another store when the state was written."""
        for store_id, name in self._names.items():
            before = self._meta.get(pin_key(store_id))
            if before is not None and before != name.encode():
                raise ConfigError(
                    f"{self._where}: store {name!r} has id {store_id}, which was {before.decode()!r} when the state "
                    f"was written: declare {before.decode()!r} again as it was, it may stay unused",
                    stage=self._stage,
                )

    def save(self) -> None:
        """Pin what is not pinned yet."""
        for store_id, name in self._names.items():
            if self._meta.get(pin_key(store_id)) is None:
                self._meta.put(pin_key(store_id), name.encode())
