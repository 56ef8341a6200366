"""Refuses numbers that JSON does not have: msgspec writes NaN and infinity as null, which no float is read from."""

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

has_null = re.compile(b"null").search  # ``in`` takes twice as long: it asks first whether it was given a number
_pack = msgspec.msgpack.Encoder().encode
_is_packed = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]", re.DOTALL).search  # a double whose exponent is all ones


def refuse_not_finite(value: object) -> None:
    """Raise ValueError that names the first NaN or infinity in a value, which JSON has written as null.

    MessagePack has these numbers, so its bytes tell without a step in Python for each part; some others look alike.
    """
    try:
        if not _is_packed(_pack(value)):
            return
    except (OverflowError, TypeError, ValueError):  # an integer above 64 bits, and what else only JSON has
        pass
    plain = msgspec.to_builtins(value, enc_hook=lambda _raw: None)
    for place, number in _not_finite(plain, "$"):
        raise ValueError(
            f"{place} is {number}, which JSON does not have, so it would come back as null: give None or a text, or "
            "refuse it; avro and protobuf have such numbers"
        )


def _not_finite(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """Yield the place of each NaN and infinity in a plain value; as keys of dicts JSON has them as texts."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield place, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _not_finite(part, f"{place}.{name}")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, part in enumerate(value):
            yield from _not_finite(part, f"{place}[{number}]")
