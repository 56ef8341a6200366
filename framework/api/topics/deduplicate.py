"""Ways to recognise a record that comes a second time: by its id, or by its number in a session."""

import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from grete.api.record import Record
from grete.api.serdes.key import Key
from grete.api.serdes.serde import Codec, Serde, bytes_serde, int64
from grete.api.store import Store
from grete.api.topics.reader import Origin, origin_of
from grete.errors import ConfigError

K = TypeVar("K")
V = TypeVar("V")

Id = str | bytes | tuple[Any, ...]
Range = tuple[int, int]  # first and last number, both seen
Seen = tuple[int, tuple[Range, ...]]  # time of the newest record, in ms; the ranges in order, with gaps between them

_LONG = struct.Struct(">q")
_RANGE = struct.Struct(">qq")


def _encode_seen(seen: Seen) -> bytes:
    return _LONG.pack(seen[0]) + b"".join(_RANGE.pack(*each) for each in seen[1])


def _decode_seen(data: bytes) -> Seen:
    time: int = _LONG.unpack_from(data)[0]
    ranges: Any = tuple(_RANGE.iter_unpack(data[_LONG.size :]))
    return time, ranges


_seen: Serde[Seen] = Codec("numbers", (_encode_seen, _decode_seen))


class ById(Generic[K, V]):
    """Recognise a record by its id, for ``horizon_ms`` of event time after the record that came first.

    The ids are state of the task: exact through crashes, and as many as the disk holds. An id that comes again after
    the horizon counts as new. Deleting old ids goes along with new ones: at most half more than the horizon's remain.
    """

    def __init__(
        self,
        id: Callable[[Record[K, V]], Id],  # noqa: A002  # the word
        horizon_ms: int,
        *,
        key: Key[Any] | None = None,
    ) -> None:
        """``id`` gives a record's id, which is not empty. Raises ConfigError on a horizon below 1 ms.

        With ``key`` it gives a tuple, whose first part is the record's key: such an id moves with its key (Key).
        """
        self.id = id
        self.horizon_ms = _checked(self, horizon_ms)
        self.key = _checked_key(self, key)

    def store(self, name: str) -> Store[Any, Any]:
        """Return the declaration of the store that keeps the ids: id → time (ms). For the runtime."""
        return Store(name, key=self.key or bytes_serde, value=int64)


class BySequence(Generic[K, V]):
    """Recognise a record by its number in its session: that of a producer, a connection, or a file.

    Numbers may come in any order, and those that are missing may come later: per session the ranges that were seen are
    state. A record that would open more than ``gaps_max`` gaps is an error of the record (see Input): no number is
    given up for lost. A session that brings nothing for ``horizon_ms`` of event time is forgotten; its numbers count as
    new then.
    """

    def __init__(
        self,
        session: Callable[[Record[K, V]], Id],
        number: Callable[[Record[K, V]], int],
        horizon_ms: int,
        gaps_max: int = 1_000,
        *,
        key: Key[Any] | None = None,
    ) -> None:
        """``session`` is not empty, ``number`` is a 64-bit integer. Raises ConfigError on a bound that is none.

        ``key``: as of ById, for sessions.
        """
        self.session = session
        self.number = number
        self.horizon_ms = _checked(self, horizon_ms)
        if gaps_max < 0:
            raise ConfigError(f"BySequence: gaps_max = {gaps_max}: need 0 or more")
        self.gaps_max = gaps_max
        self.key = _checked_key(self, key)

    @classmethod
    def from_headers(cls, horizon_ms: int, gaps_max: int = 1_000) -> "BySequence[K, V]":
        """Go by the headers that feeds, ``Writer`` and deterministic jobs write. A record without them is an error."""
        return cls(_producer, _seq, horizon_ms, gaps_max)

    def store(self, name: str) -> Store[Any, Any]:
        """Return the declaration of the store: session → time (ms) and the ranges that were seen. For the runtime."""
        return Store(name, key=self.key or bytes_serde, value=_seen)


def _origin(record: Record[Any, Any]) -> Origin:
    origin = origin_of(record.headers)
    if origin is None:
        raise ValueError(
            "the record has no header grete, or grete.producer and grete.seq: it is not from a feed, a Writer or a "
            "deterministic job"
        )
    return origin


def _producer(record: Record[Any, Any]) -> str:
    return _origin(record).producer


def _seq(record: Record[Any, Any]) -> int:
    return _origin(record).seq


Deduplicate = ById[K, V] | BySequence[K, V]


def _checked(declared: object, horizon_ms: int) -> int:
    if type(horizon_ms) is not int or horizon_ms < 1:
        raise ConfigError(f"{type(declared).__name__}: horizon_ms = {horizon_ms!r}: need an int of 1 ms or more")
    return horizon_ms


def _checked_key(declared: object, key: object) -> Key[Any] | None:
    if key is not None and not isinstance(key, Key):
        raise ConfigError(
            f"{type(declared).__name__}: key = {key!r}: need a Key, such as Key(utf8, utf8) of the record's key and an "
            "id, or None"
        )
    return key
