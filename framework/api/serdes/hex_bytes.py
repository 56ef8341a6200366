"""Bytes in the JSON of records where JSON has nothing that is read again as they are."""

from typing import Any

import msgspec

from grete.api.serdes.serde import Serde


class HexHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bytes of a header that are no text."""

    hex: str


class HexBytes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The bytes of a key or value, as {"hex": …, "not" or "of": name of the serde}; bytes.fromhex reads ``hex``.

    ``not_``: the serde cannot read them. ``of``: it can, and JSON of what it reads looks like a deletion, or like this.
    """

    hex: str
    not_: str | None = msgspec.field(name="not", default=None)
    of: str | None = None


def told_by_json(plain: Any, serde: Serde[Any]) -> bool:
    """Tell whether JSON of a value of a serde is read again as that value: null is read as a deletion."""
    return plain is not None and hex_bytes(plain, serde) is None


def hex_bytes(plain: Any, serde: Serde[Any]) -> bytes | None:
    """Return the bytes that JSON has as ``HexBytes`` of a serde; None if it has something else."""
    try:
        found = msgspec.convert(plain, HexBytes)
        return bytes.fromhex(found.hex) if [found.not_, found.of].count(serde.name) == 1 else None
    except (msgspec.ValidationError, ValueError):
        return None
