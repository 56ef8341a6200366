"""Serdes: how keys and values become bytes. A serde is a name and two functions; any object with these will do."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec
from msgspec import inspect

from grete.api.serdes.json_forms import BY_TYPE, canonical, in_one_order, may_be_spelled, may_be_unsorted, may_differ
from grete.api.serdes.json_numbers import has_null, refuse_not_finite
from grete.api.serdes.json_sets import with_sorted_sets
from grete.api.serdes.pydantic_models import alike, functions, is_model, parts_of, unread
from grete.errors import ConfigError, SerdeError

T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])

_REPR_CHARS_MAX = 80  # of a value in an error: one line of a terminal


class Serde(Protocol[T]):
    """The serde interface that declarations need.

    Both functions may raise anything; Grete turns it into a SerdeError. A serde whose bytes are JSON, as text, says so
    by an attribute ``is_json = True``: commands and Spark read and write it as JSON then, and a web service is told.
    A serde of keys of which a part places the record has a method ``placing``, from the bytes of a key to that part's.
    """

    @property
    def name(self) -> str:
        """Return the name that errors and ``grete state`` show."""

    def encode(self, value: T) -> bytes:
        """Return the bytes of a value."""

    def decode(self, data: bytes) -> T:
        """Return the value of the bytes."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """A serde of two plain functions. ``functions`` gives them bare for hot loops; the methods translate errors.

    Two codecs are equal when name and ``schema`` agree: that is how one topic name with two serdes is noticed.
    ``first``: what writes keys and values as version 1 did; ``for_keys``: what writes keys. None: this one.
    ``is_json``: as ``holds_json`` asks.
    """

    name: str
    functions: tuple[Callable[[T], bytes], Callable[[bytes], T]]
    schema: object = None
    first: "Codec[T] | None" = field(default=None, repr=False)
    for_keys: "Codec[T] | None" = field(default=None, repr=False)
    is_json: bool = False

    def encode(self, value: T) -> bytes:
        """Return the bytes of a value. Raises SerdeError naming serde and value."""
        try:
            return self.functions[0](value)
        except Exception as error:
            raise encode_error(self, value, error) from error

    def decode(self, data: bytes) -> T:
        """Return the value of the bytes. Raises SerdeError naming serde and bytes."""
        try:
            return self.functions[1](data)
        except Exception as error:
            raise decode_error(self, data, error) from error

    def __eq__(self, other: object) -> bool:
        """Compare by what is written, not by which object writes it."""
        return isinstance(other, Codec) and (self.name, self.schema) == (other.name, other.schema)

    def __hash__(self) -> int:
        """Hash by the name, as equality does."""
        return hash(self.name)


def functions_of(serde: Serde[T]) -> tuple[Callable[[T], bytes], Callable[[bytes], T]]:
    """Return (encode, decode) without error translation: call ``encode_error`` or ``decode_error`` when they raise."""
    if isinstance(serde, Codec):
        return serde.functions
    encode = serde.encode

    def encode_checked(value: T) -> bytes:
        return same_bytes(encode(value))

    return encode_checked, serde.decode


def holds_json(serde: Serde[Any]) -> bool:
    """Tell whether the bytes of a serde are JSON, as text: the serde says so, and no name does."""
    return getattr(serde, "is_json", False) is True


def may_be_none(serde: Serde[Any]) -> bool:
    """Tell whether a serde may read bytes as None: text, numbers and many types of JSON are never."""
    if isinstance(serde, Codec) and serde.schema is None:
        return False
    if not isinstance(serde, Codec) or not serde.is_json or serde.schema is Any:
        return True
    try:
        return serde.functions[1](b"null") is None
    except Exception:  # noqa: BLE001  # a validator of the user's may raise anything
        return False


def encode_error(
    serde: Serde[Any], value: object, cause: Exception, where: str = "", *, key: object = None
) -> SerdeError:
    """Return the error for a value that the serde refused. ``where`` says who asked and ends in ": "; ``key``: its."""
    if value is None:
        return SerdeError(
            f"{where}serde {serde.name} cannot encode None: a record's key or value is None where its producer gave "
            "none: test for it in the task, or let the producer give one"
        )
    what = shortened(value) if key is None else f"{shortened(value)} of key {shortened(key)}"
    return SerdeError(f"{where}serde {serde.name} cannot encode {what}: {type(cause).__name__}: {cause}")


def decode_error(serde: Serde[Any], data: object, cause: Exception, where: str = "") -> SerdeError:
    """Return the error for bytes that the serde refused; ``where`` as in ``encode_error``."""
    return SerdeError(f"{where}serde {serde.name} cannot decode {shortened(data)}: {type(cause).__name__}: {cause}")


def shortened(value: object) -> str:
    """Return the value's repr, cut."""
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= _REPR_CHARS_MAX else text[:_REPR_CHARS_MAX] + "…"


def same_bytes(data: bytes) -> bytes:
    """Return the bytes; anything else is refused, so that a str does not travel as bytes by accident."""
    if type(data) is not bytes:
        raise TypeError("need bytes")
    return data


_LONG = struct.Struct(">q")
_ORDERED = struct.Struct(">Q")
_SIGN = 1 << 63  # flipped, the bytes of negative numbers sort before those of positive ones


def _decode_int64(data: bytes) -> int:
    """Return the number of 8 big-endian bytes in two's complement."""
    number: int = _LONG.unpack(data)[0]
    return number


def _encode_ordered(value: int) -> bytes:
    """Return 8 bytes whose order as bytes is the order of the numbers: the sign bit is flipped."""
    return _ORDERED.pack(value + _SIGN)


def _decode_ordered(data: bytes) -> int:
    """Undo ``_encode_ordered``."""
    number: int = _ORDERED.unpack(data)[0]
    return number - _SIGN


utf8: Serde[str] = Codec("utf8", (str.encode, bytes.decode))
"""A serde of text: ``str`` as UTF-8."""
bytes_serde: Serde[bytes] = Codec("bytes", (same_bytes, same_bytes))
"""A serde of ``bytes``, as they are."""
int64: Serde[int] = Codec("int64", (_LONG.pack, _decode_int64))
"""A serde of ``int`` in 8 bytes, big endian: as Kafka's LongSerializer, so that other consumers read it."""
ordered_int64: Serde[int] = Codec("int64", (_encode_ordered, _decode_ordered), schema="ordered")


def topic_serde(serde: Serde[T]) -> Serde[T]:
    """Undo ``key_serde``: return the serde as it was declared, for what leaves the store."""
    return int64 if serde is ordered_int64 else serde  # type: ignore[return-value]  # T is int in that branch


def placing_of(serde: Serde[Any]) -> Callable[[bytes], bytes] | None:
    """Return the function from the bytes of a topic's key to those that place its record; None: the whole key does.

    A serde whose keys are placed by a part of them has it as ``placing``, as Key does.
    """
    return getattr(serde, "placing", None)


def placing_in_store(serde: Serde[Any]) -> Callable[[bytes], bytes] | None:
    """Return the same function for the bytes of a store's key, of that serde. What it gives is as topics have it."""
    return _as_int64 if serde is ordered_int64 else placing_of(serde)


def _as_int64(key: bytes) -> bytes:
    return bytes((key[0] ^ 0x80,)) + key[1:]


def key_serde(serde: Serde[T]) -> Serde[T]:
    """Return the serde for keys of a store: where ``serde`` does not sort as its values do, the form that does."""
    return ordered_int64 if serde is int64 else one_key_serde(serde)  # type: ignore[return-value]  # T is int here


# --- Versions: what a job writes, as its definition pins it (grete.api.jobs.versions) ---------------------------------


def one_key_serde(serde: Serde[T]) -> Serde[T]:
    """Return the serde for keys in a log: equal keys have equal bytes, and so one partition."""
    return serde.for_keys or serde if isinstance(serde, Codec) else serde


def first_serde(serde: Serde[T]) -> Serde[T]:
    """Return the serde that writes as version 1 of a serde did; of a serde that has one version, itself."""
    return serde.first or serde if isinstance(serde, Codec) else serde


def written_in_two_ways(serde: Serde[Any]) -> bool:
    """Tell whether the versions of a serde write other bytes."""
    first = first_serde(serde)
    return isinstance(serde, Codec) and isinstance(first, Codec) and first.functions != serde.functions


def in_each_version(make: M) -> M:
    """Let a function that makes a serde of others give it their versions."""

    def made(*parts: Serde[Any]) -> Any:
        if not any(map(written_in_two_ways, parts)):
            return make(*parts)
        return replace(make(*parts), first=make(*map(first_serde, parts)))

    return made  # type: ignore[return-value]  # it takes and returns the same


_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_encode_unsorted = msgspec.json.Encoder().encode


def encode_json(value: object) -> bytes:
    """Return JSON in which sets and dicts are sorted: the same bytes in every process.

    Raises ValueError for NaN and infinity, TypeError for what JSON cannot hold at all.
    """
    return _encoded(value, value, lambda value: in_one_order(value, _encode_unsorted))


def encode_json_first(value: object) -> bytes:
    """Return JSON as version 1 does: dicts with other keys than str, and those beside them, keep their order."""
    return _encoded(value, value, lambda value: with_sorted_sets(value, encode_json_first))


def _encode_json_key(value: object) -> bytes:
    """Return JSON as ``encode_json``, and the same bytes for all values that are equal."""
    if type(value) not in BY_TYPE:
        try:
            data = _encode_sorted(value)
        except TypeError:
            pass
        else:
            if not may_differ(data) and not has_null(data):
                return data
    return _encoded(canonical(value, _encode_unsorted), value, lambda written: written)


def _encoded(written: object, value: object, ordered: Callable[[object], object]) -> bytes:
    """Return the JSON of what is ``written`` for a value; ``ordered``: makes what msgspec does not sort."""
    try:
        data = _encode_sorted(written)
    except TypeError:  # msgspec sorts only dicts with str keys; what JSON cannot hold at all is refused here again
        data = _encode_unsorted(ordered(written))
    if has_null(data):
        refuse_not_finite(value)
    return data


def _json_codec(type_: type[T]) -> Codec[T]:
    """Return JSON through msgspec, or pydantic for its models. Raises ConfigError if it cannot decode into the type."""
    name = "json" if type_ is Any else f"json({getattr(type_, '__name__', type_)})"
    try:
        parts = [*parts_of(inspect.type_info(type_))]
        if any(is_model(getattr(part, "cls", None)) for part in parts):
            if pair := alike(type_):
                raise ConfigError(
                    f"{name}: {pair} are of one union and have the same fields, so each would come back as the first: "
                    'give both a field that differs, such as kind: Literal["placed"]'
                )
            encode, key, decode = functions(type_, encode_json)
            encoders = encode, encode, key
        else:
            decode = msgspec.json.Decoder(type_).decode
            encoders = encode_json_first if may_be_unsorted(parts) else encode_json, encode_json, _encode_json_key
    except TypeError as error:
        raise ConfigError(f"{name}: msgspec cannot decode into this type: {error}") from error
    before, now, for_keys = (Codec(name, (encode, decode), schema=type_, is_json=True) for encode in encoders)
    return replace(now, first=before, for_keys=replace(for_keys, first=before)) if may_be_spelled(parts) else now


def refuse_no_serde(found: object, where: str) -> None:
    """Raise ConfigError for what is no serde, as a type or the name of one is."""
    if not (callable(getattr(found, "encode", None)) and callable(getattr(found, "decode", None))):
        raise ConfigError(f"{where}: {shortened(found)} is no serde: use one such as utf8, int64 or json")


def refuse_unread(serde: object, where: str) -> None:
    """Raise ConfigError for a serde whose values come back without a field, where they are both written and read."""
    if not isinstance(serde, Codec) or serde.schema is Any:
        return
    for inner in serde.schema if isinstance(serde.schema, tuple) else (serde.schema,):
        refuse_unread(inner, where)
    if serde.is_json and (field := unread(serde.schema)):
        raise ConfigError(
            f"{where}: {serde.name}: {field}, so it would be lost: give it one alias, Field(alias=…), or let "
            "validation_alias have the written name, too: AliasChoices(…)"
        )


class Json(Codec[Any]):
    """``json`` is a serde of plain JSON values; ``json(Type)`` one of a dataclass, a struct, list[int] and so on.

    A struct is msgspec's; a model of pydantic, wherever it is in the type, makes pydantic write and check the whole.

    Sets and dicts are written sorted: a value has the same bytes in each process. As a key, equal values have the same
    bytes, too: Decimal("1.0") and Decimal("1.00"), a moment in two time zones, 5 and 5.0.
    """

    __slots__ = ()

    @overload
    def __call__(self, type_: type[T]) -> Serde[T]: ...

    @overload
    def __call__(self, type_: Any) -> Serde[Any]: ...

    def __call__(self, type_: Any) -> Serde[Any]:
        """Return a serde that decodes into ``type_``, refusing JSON that does not fit. Raises ConfigError: odd type."""
        return _json_codec(type_)


_plain = _json_codec(Any)
json = Json("json", _plain.functions, Any, _plain.first, _plain.for_keys, is_json=True)
"""A serde of plain JSON values; ``json(Type)`` is one of a dataclass, a struct, a pydantic model and so on."""
