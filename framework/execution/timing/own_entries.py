"""The runtime's own entries in a task's state: event time, floors, turns, calls.

What has not changed is not written again.
"""

import struct
from collections.abc import Iterable

from grete.execution.timing.floors import Floors
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.stores.overlay.overlay import Overlay

_INT64 = struct.Struct(">q")


class OwnEntries:
    """Entries of the reserved store META, as they were read or written last."""

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
