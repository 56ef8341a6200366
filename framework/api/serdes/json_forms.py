"""The forms by which equal values get equal bytes in JSON: one order for every value, and one spelling more for a key.

Sets and dicts are sorted in a value, wherever they are. A value keeps the rest as it came: the zeros of a price, the
time zone of a moment. A key is written without them, since its bytes decide where its state is: ``canonical``.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import inspect

from grete.api.serdes.json_sets import Encode, fields_of, parts_of

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)  # the usual one has 28 digits
_PLAIN_DIGITS = 21  # from 10**21 on a Decimal keeps its exponent, as a number does in JavaScript: 1E+9999 is short
_ONE = Decimal(1)
_ANY_DAY = date(2000, 1, 1)
_SPELLED = (Decimal, datetime, time)  # kept as they are by to_builtins, beside float
_OPEN = (inspect.AnyType, inspect.CustomType, inspect.RawType)  # what is in them, only a value tells
_IN_WAYS = (inspect.FloatType, inspect.DecimalType, inspect.DateTimeType, inspect.TimeType)

# In JSON without any of these there is no set, and each number, Decimal and time has its one spelling.
may_differ = re.compile(rb"[.\[]|\d[eE]|\d:\d\d|-0|\d{%d}" % _PLAIN_DIGITS).search

Spell = Callable[[Any, Any], Any]


def may_be_unsorted(parts: list[Any]) -> bool:
    """Tell whether a type, given by what it is made of, may hold a dict that msgspec does not sort."""
    return any(
        isinstance(part, _OPEN)
        or (isinstance(part, inspect.DictType) and not isinstance(part.key_type, inspect.StrType))
        for part in parts
    )


def may_be_spelled(parts: list[Any]) -> bool:
    """Tell whether equal values of a type may be written in several ways."""
    return may_be_unsorted(parts) or any(isinstance(part, _IN_WAYS) for part in parts)


def in_one_order(value: object, encode: Encode) -> object:
    """Return plain values in which dicts and sets are sorted. ``encode``: of a plain value, as it is."""
    plain = _plain(value)
    return value if plain is value else _walk(plain, value, _as_it_is, encode)


def canonical(value: Any, encode: Encode) -> Any:
    """Return the written form of a key: sorted, and one spelling for all equal numbers, Decimals and moments."""
    spell = BY_TYPE.get(type(value))
    if spell is not None:
        return spell(value)
    plain = _plain(value)
    return value if plain is value else _walk(plain, value, _spelled, encode)


def canonical_of(plain: Any, value: Any, encode: Encode) -> Any:
    """Return ``canonical`` of a value that something else than msgspec has made plain."""
    return _walk(plain, value, _spelled, encode)


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value, builtin_types=_SPELLED)
    except TypeError:  # bytes that are JSON already, or what JSON cannot hold at all: the encoder says which
        return value


def _walk(plain: Any, value: Any, spell: Spell, encode: Encode) -> Any:
    """Return a plain value in one order. ``value``: what it was made of, which tells the sets."""
    if isinstance(plain, dict):
        parts = _named_parts(plain, value)
        named = [(spell(name, key), _walk(part, inner, spell, encode)) for name, part, key, inner in parts]
        if isinstance(value, Mapping):
            in_json = all(isinstance(name, str) for name, _ in named)
            named.sort(key=itemgetter(0) if in_json else lambda each: encode({each[0]: None}))
        return dict(named)
    if isinstance(plain, list | tuple):
        items = [_walk(part, inner, spell, encode) for part, inner in zip(plain, _items(plain, value), strict=True)]
        return sorted(items, key=encode) if isinstance(value, set | frozenset) else items
    return spell(plain, value)


def _named_parts(plain: dict[Any, Any], value: Any) -> list[tuple[Any, Any, Any, Any]]:
    """Return name, part, and what each of them was made of."""
    if isinstance(value, Mapping):
        if len(value) == len(plain):
            return [(*now, *was) for now, was in zip(plain.items(), value.items(), strict=True)]
        return [(name, part, name, part) for name, part in plain.items()]
    fields = fields_of(type(value))
    return [
        (name, part, name, getattr(value, fields[name]) if name in fields else part) for name, part in plain.items()
    ]


def _items(plain: Any, value: Any) -> list[Any]:
    """Return the parts of which the items of a list were made; the tag of a struct was made of nothing."""
    found = [] if isinstance(value, str) else list(parts_of(value))
    tags = plain[: len(plain) - len(found)] if isinstance(value, msgspec.Struct) else []
    items = [*tags, *found]
    return items if len(items) == len(plain) else list(plain)


def _as_it_is(plain: Any, _value: Any) -> Any:
    return plain


def _spelled(plain: Any, value: Any) -> Any:
    """Return the one spelling of a number, a Decimal or a moment; all else as it is."""
    if isinstance(plain, float):
        return _number(plain)
    if isinstance(plain, str) and not isinstance(value, str):  # pydantic has made a text of it
        if isinstance(value, Decimal) and plain == str(value):
            return _decimal(value)
        if isinstance(value, datetime) and value.tzinfo is not None and _reads(plain) == value:
            return msgspec.to_builtins(_moment(value))
        return plain
    for type_, spell in BY_TYPE.items():
        if isinstance(plain, type_):
            return spell(plain)
    return plain


def _reads(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # a serializer of the user's has another form, which stays
        return None


def _number(number: float) -> Any:
    """Return a whole number as an int, so that 5.0 is written as 5 is, and -0.0 as 0."""
    return int(number) if number.is_integer() else number


def _decimal(number: Decimal) -> str:
    """Return the text of a Decimal without zeros at its end, and without an exponent where that is short."""
    if not number:
        return "0"
    text = str(number)
    if len(text) < _PLAIN_DIGITS and "E" not in text:
        return text.rstrip("0").rstrip(".") if "." in text else text
    if not number.is_finite():
        return text
    short = number.normalize(_EXACT)
    whole = 0 < short.adjusted() < _PLAIN_DIGITS and short == short.to_integral_value()
    return str(short.quantize(_ONE, context=_EXACT) if whole else short)


def _moment(moment: datetime) -> datetime:
    """Return a moment in UTC; one without a time zone as it is."""
    return moment if moment.utcoffset() is None else moment.astimezone(UTC)


def _time(clock: time) -> time:
    """Return a time in UTC, where that is of the same day; else as it is."""
    if clock.utcoffset() is None:
        return clock
    at = datetime.combine(_ANY_DAY, clock).astimezone(UTC)
    return at.timetz() if at.date() == _ANY_DAY else clock


BY_TYPE: dict[type, Callable[[Any], Any]] = {float: _number, Decimal: _decimal, datetime: _moment, time: _time}
