"""Composite keys. The first part places the record, so all that belongs to one value of it is in one partition."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, overload

import msgspec

from grete.api.serdes.serde import (
    Codec,
    Serde,
    bytes_serde,
    first_serde,
    functions_of,
    holds_json,
    key_serde,
    placing_in_store,
    placing_of,
    refuse_no_serde,
    written_in_two_ways,
)
from grete.errors import ConfigError
from grete.protocol.partitioner import partition_of

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
T = TypeVar("T")

PartitionBy = Callable[[bytes, int], int]  # key, partitions → partition
Names = Sequence[str]

# Behind each part but the last. A NUL within a part is escaped, so that keys sort as their parts do.
_END, _NUL, _ESCAPED = b"\x00\x01", b"\x00", b"\x00\xff"


class Placing(NamedTuple):
    """The first part of an encoded key, as a topic has it. Plain data: Spark's executors may have it."""

    in_topic: Callable[[bytes], bytes] | None

    def __call__(self, key: bytes) -> bytes:
        """Return the part; of bytes that are no such key all of them, which is for a decoder to refuse."""
        part = key.partition(_END)[0].replace(_ESCAPED, _NUL)
        return part if self.in_topic is None else self.in_topic(part)


class Key(Codec[T]):
    """A serde of a key of several parts, a tuple: ``Key(utf8, int64)``. Its first part alone places a record.

    The keys of one customer are in one partition, whatever their other parts: of a stream as of a store, a window, a
    timer or an id that was seen. So a stage may keep ``(customer, article)`` while its records have the key
    ``customer``, or the other way round, and the job can be rescaled and forked.

    Write the record's key, or its first part, as the first part of what a task keeps for it. An entry with another
    first part would stay with this task, and its key belongs to another one, whose records do not find it: the kit
    reports it, and a rescale refuses it. A record may be sent with any key: that is what brings it to another task.

    Keys sort by their parts, the first one first; ``Store.prefix(("ann",))`` yields those that begin with it. ``names``
    of the parts are those of the columns that Spark and exports show: ``_1``, ``_2`` and so on unless given.
    """

    __slots__ = ("names",)
    names: tuple[str, ...]

    @overload
    def __init__(self: "Key[tuple[A, B]]", first: Serde[A], second: Serde[B], /, *, names: Names = ()) -> None: ...

    @overload
    def __init__(
        self: "Key[tuple[A, B, C]]", first: Serde[A], second: Serde[B], third: Serde[C], /, *, names: Names = ()
    ) -> None: ...

    @overload
    def __init__(
        self: "Key[tuple[A, B, C, D]]",
        first: Serde[A],
        second: Serde[B],
        third: Serde[C],
        fourth: Serde[D],
        /,
        *,
        names: Names = (),
    ) -> None: ...

    def __init__(self, *parts: Serde[Any], names: Names = ()) -> None:
        """Make the serde of these parts. Raises ConfigError: there are not two or more, or one is no serde; bad names.

        ``names`` may change at any time: no byte depends on them.
        """
        name = f"Key({', '.join(str(getattr(part, 'name', part)) for part in parts)})"
        for part in parts:
            refuse_no_serde(part, name)
        if len(parts) < 2:
            raise ConfigError(f"{name}: need two serdes or more: the first is of the part that places a record")
        found = (*names,) or tuple(f"_{number}" for number in range(1, len(parts) + 1))
        are_names = all(isinstance(each, str) and each.isidentifier() for each in found)
        if not (are_names and len(found) == len(parts) == len({*found})):
            raise ConfigError(f"{name}: names = {names!r}: need {len(parts)} names such as 'shop', each another one")
        serdes = tuple(map(key_serde, parts))
        make: Any = Key
        first = make(*map(first_serde, serdes), names=found) if any(map(written_in_two_ways, serdes)) else None
        super().__init__(name, _functions(serdes), serdes, first)
        object.__setattr__(self, "names", found)

    @property
    def parts(self) -> tuple[Serde[Any], ...]:
        """Return the serdes of the parts, as they are written within a key."""
        serdes: Any = self.schema
        return tuple(serdes)

    @property
    def placing(self) -> Placing:
        """Return the function from a key's bytes to those of the part that places it."""
        return Placing(placing_in_store(self.parts[0]))

    def begin(self, parts: tuple[Any, ...]) -> bytes:
        """Return the bytes with which the keys of these first parts begin. Raises TypeError: there are too many."""
        if len(_sequence(parts)) > len(self.parts):
            raise TypeError(f"a key has {len(self.parts)} parts")
        return _joined(parts, [functions_of(serde)[0] for serde in self.parts], whole=len(self.parts))

    def of_plain(self, parts: Any) -> tuple[Any, ...]:
        """Return a key, or the first parts of one, that JSON has as a list. Raises TypeError, ValueError."""
        if len(_sequence(parts)) > len(self.parts):
            raise TypeError(f"a key has {len(self.parts)} parts")
        return tuple(of_plain(serde, part) for serde, part in zip(self.parts, parts, strict=False))


def of_plain(serde: Serde[Any], plain: Any) -> Any:
    """Return the value that JSON has as ``plain``: bytes as hex digits, a key as a list. Raises what the serde does."""
    if isinstance(serde, Key):
        return serde.of_plain(plain)
    if holds_json(serde):
        return serde.decode(msgspec.json.encode(plain))
    return bytes.fromhex(plain) if serde == bytes_serde else plain


def prefix_of(serde: Serde[Any]) -> Callable[[Any], bytes]:
    """Return the function from a prefix to the bytes with which keys begin: of a Key, its first parts will do."""
    return serde.begin if isinstance(serde, Key) else functions_of(serde)[0]


def partition_by(serde: Serde[Any]) -> PartitionBy:
    """Return the partitioner of the records with keys of a serde: murmur2 of what places them."""
    placing = placing_of(serde)
    return partition_of if placing is None else partial(_placed, placing)


def _placed(placing: Callable[[bytes], bytes], key: bytes, partitions: int) -> int:
    return partition_of(placing(key), partitions)


def _functions(serdes: tuple[Serde[Any], ...]) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    encoders, decoders = zip(*map(functions_of, serdes), strict=True)

    def encode(key: Any) -> bytes:
        if len(_sequence(key)) != len(encoders):
            raise TypeError(f"need {len(encoders)} parts")
        return _joined(key, encoders, whole=len(encoders))

    def decode(data: bytes) -> Any:
        parts = []
        rest = data
        for decode_part in decoders[:-1]:
            part, end, rest = rest.partition(_END)
            if not end or part.count(_NUL) != part.count(_ESCAPED):
                raise ValueError(f"these are no {len(decoders)} parts, as Key writes them")
            parts.append(decode_part(part.replace(_ESCAPED, _NUL)))
        return (*parts, decoders[-1](rest))

    return encode, decode


def _joined(parts: Any, encoders: Any, *, whole: int) -> bytes:
    """Return the bytes of parts one behind the other; an end is behind each but the last of the whole."""
    encoded = [encode(part) for encode, part in zip(encoders, parts, strict=False)]
    last = encoded.pop() if len(encoded) == whole else b""
    return b"".join([part.replace(_NUL, _ESCAPED) + _END for part in encoded]) + last


def _sequence(key: Any) -> Any:
    if not isinstance(key, (tuple, list)):
        raise TypeError("need a tuple")
    return key
