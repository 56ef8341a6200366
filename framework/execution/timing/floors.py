"""Event time of each key before its state was moved to another task (0079).

A task that gets entries from several tasks begins with the least of their event times, since no timer of the slowest
may be taken for late. For the keys of the others time was further: a window that had closed there is closed. So the
task keeps a *floor*: the event time of each old partition at the move. Which one a key was in follows from the key.
"""

from hashlib import blake2b
from typing import Literal, Self

import msgspec

from grete.core.graph.partitioners import Partitioner
from grete.errors import ConfigError
from grete.execution.timing.event_time import BEFORE_ALL
from grete.stores.overlay.overlay_store import OverlayStore

FLOOR = b"time floor "  # in META, before a digest of the value; behind STREAM_TIME in the order of keys
_END = FLOOR[:-1] + bytes((FLOOR[-1] + 1,))


class Floor(msgspec.Struct, frozen=True):
    """The floors of one move: the event time in ms of each old partition, BEFORE_ALL if it had none."""

    times: tuple[int, ...]
    partitioner: Partitioner = Partitioner.MURMUR2
    format: Literal[1] = 1

    def of(self, key: bytes) -> int:
        """Return the event time at the move for a key as topics have it."""
        at = self.partitioner.place(key, len(self.times))
        assert at is not None, "a state whose keys only their producer can place is not moved"
        return self.times[at]

    @property
    def is_level(self) -> bool:
        """Whether all partitions were equally far, so that it says no more than the event time to begin with."""
        return len(set(self.times)) == 1

    def entry(self) -> tuple[bytes, bytes]:
        """Return the (key, value) in META: those of several moves do not clash, and equal ones are one."""
        value = msgspec.json.encode(self)
        return FLOOR + blake2b(value, digest_size=8).digest(), value

    @classmethod
    def of_entry(cls, value: bytes) -> Self:
        """Undo ``entry``. Raises ConfigError: a newer release wrote it."""
        try:
            return msgspec.json.decode(value, type=cls)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"the state has a floor of event time that this release cannot read: {value[:100]!r}: {error}: run the "
                "job with the release that wrote it, or a later one"
            ) from error


class Floors:
    """The floors of one task, which are state. ``load`` comes first, and after each rollback."""

    def __init__(self, meta: OverlayStore) -> None:
        self._meta = meta
        self.kept: list[Floor] = []

    def load(self) -> None:
        """Read them from the state."""
        self.kept = [Floor.of_entry(value) for _, value in self._meta.scan(FLOOR, _END)]

    def of(self, key: bytes) -> int:
        """Return the event time reached, in ms, for a key as topics have it."""
        return max((floor.of(key) for floor in self.kept), default=BEFORE_ALL)

    def drop(self, now: int) -> None:
        """Delete what event time, ``now``, has passed for all keys: it says nothing any more."""
        for floor in self.kept:
            if max(floor.times) <= now:
                self._meta.delete(floor.entry()[0])
        self.kept = [floor for floor in self.kept if max(floor.times) > now]
