"""Windows of counts: as many records of a key as a window takes, whenever they come."""

import struct
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

from grete.api.serdes.serde import Codec, Serde, functions_of, in_each_version
from grete.api.stateful.key_windows import Pane, panes_serde
from grete.api.stateful.windows import Window, WindowStore
from grete.api.store import Store
from grete.errors import ConfigError, TaskError
from grete.quoting import key_text

K = TypeVar("K")
V = TypeVar("V")
Counted = tuple[int, V]  # records that the window still takes, value

_LEFT = struct.Struct(">I")
SIZE_MAX = (1 << 32) - 1  # what _LEFT can hold


@in_each_version
def _counted_serde(value: Serde[V]) -> Serde[Counted[V]]:
    encode_value, decode_value = functions_of(value)

    def encode(counted: Counted[V]) -> bytes:
        return _LEFT.pack(counted[0]) + encode_value(counted[1])

    def decode(data: bytes) -> Counted[V]:
        return _LEFT.unpack_from(data)[0], decode_value(data[_LEFT.size :])

    return Codec(f"counted({value.name})", (encode, decode), schema=value)


class CountWindow(WindowStore[K, V]):
    """Each ``size`` records of a key, one window after another, in the order in which the task takes them.

    A window closes with its last record: ``on_window`` gets it at once, as part of that record, so that an error there
    is the record's. Time closes none: no record is late, and a window that is not full stays open. Then nothing of the
    key is kept. ``start`` and ``end`` are around the timestamps of the records, start <= timestamp < end, and what is
    sent carries end - 1. See WindowStore for the rest.

    With ``every``, ``on_window`` gets the last ``size`` records of a key with each ``every``-th one; of a key's first
    ones there are fewer. A record changes about size / every values, which the store keeps for each key for good.
    """

    kind = "count"
    by_time = False
    panes: Store[K, list[Pane[Counted[V]]]]

    def __init__(
        self,
        name: str,
        size: int,
        key: Serde[K],
        value: Serde[V],
        emit: Literal["final", "update"] = "final",
        *,
        every: int | None = None,
    ) -> None:
        """Declare the window; it is also a store of this name.

        ``emit="update"`` gives early results, too: after each record, of the window that it is in. Raises ConfigError:
        ``size`` is not 1 to 2**32 - 1, ``every`` not 1 to ``size``, another ``emit``, early results with ``every``.
        """
        step = size if every is None else every
        if not (type(size) is type(step) is int and 1 <= step <= size <= SIZE_MAX):
            raise ConfigError(
                f"window {name!r}: size = {size!r}, every = {every!r}: need a size of 1 to {SIZE_MAX} records, and "
                "every of 1 to size, or None"
            )
        if emit not in ("final", "update"):
            raise ConfigError(f"window {name!r}: emit = {emit!r}: need 'final' or 'update': no time ends the window")
        if emit == "update" and step != size:
            raise ConfigError(
                f"window {name!r}: emit = 'update', every = {every}: a record is in several windows, of which some "
                "begin with the same one, so no early result could tell its window: leave one of the two out"
            )
        super().__init__(name, {}, key, value, 0, emit, late_to=None, errors="fail")
        self.size, self.every = size, step
        self.sizes |= {"size": size, "every": step}

    def store(self) -> Store[K, list[Pane[Counted[V]]]]:
        """As of WindowStore."""
        return Store(self.name, self.key, panes_serde(_counted_serde(self.value)))

    def take(self, key: K, timestamp: int, change: Callable[[V | None], V]) -> bool:
        """Change the key's open windows, the one that closes next first, and give it if this is its last record."""
        before = self.panes.get(key, [])
        opened = self._opened(before)
        panes = [
            (min(start, timestamp), max(last, timestamp), (left - 1, change(value)))
            for start, last, (left, value) in before
        ]
        panes += [(timestamp, timestamp, (left - 1, change(None))) for left in opened]
        (start, last, (left, value)), *others = panes
        open_ = panes if left else others
        if open_:
            self.panes.put(key, open_)
        elif before:
            self.panes.delete(key)
        if not left:
            self.give(Window(self.name, start, last + 1, key, value), last)
        elif self.emit == "update":
            replaces = (before[0][0],) if before and before[0][0] != start else ()
            self.give(Window(self.name, start, last + 1, key, value, False, replaces), None)
        return True

    def _opened(self, before: list[Pane[Counted[V]]]) -> range:
        """Return the records that each window takes which begins with the next one; ``before``: those that are open."""
        if not before:  # the first ones of a key close as if there had been records before it
            return range(self.every, self.size + 1, self.every)
        left = before[0][2][0]
        return range(self.size, self.size if (self.size - left) % self.every else self.size + 1)

    def close(self, at: int, key: str) -> None:
        """As of WindowStore. Raises TaskError: there is no timer of it."""
        raise TaskError(f"window {self.name!r} has a timer of key {key_text(key)} at {at}, which it never sets")

    def find(self, start: int, key: K, now: int) -> tuple[int, int, V] | None:
        """As of WindowStore: none, as no early result waits for its time."""
        return None

    def windows_in(self, key: K, value: list[Pane[Counted[V]]]) -> Iterator[Window[K, V]]:
        """As of WindowStore."""
        return (Window(self.name, start, last + 1, key, counted[1]) for start, last, counted in value)
