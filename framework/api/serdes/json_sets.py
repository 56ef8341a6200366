"""Sorts the sets in a value that msgspec cannot write sorted, because a dict in it has keys that are no texts.

The order of a set is that of hashes, which differ from process to process: a deterministic task would make other bytes
again. Dicts keep their order, which is that of insertion, so a value without sets is written as it always was.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

Encode = Callable[[object], bytes]

_known: dict[type, Mapping[str, str]] = {}


def with_sorted_sets(value: object, encode: Encode) -> object:
    """Return the form of a value to write: itself if it has no set, else plain values. ``encode``: of an item."""
    return _sorted(msgspec.to_builtins(value), value, encode) if _has_set(value) else value


def _has_set(value: Any) -> bool:
    return isinstance(value, set | frozenset) or any(map(_has_set, parts_of(value)))


def parts_of(value: Any) -> Iterable[Any]:
    """Return the parts of a value, in the order in which they are written."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    return [getattr(value, name, None) for name in fields_of(type(value)).values()]


def fields_of(type_: Any) -> Mapping[str, str]:
    """Return name in JSON → name of the attribute, of a struct, a dataclass or a class of attrs."""
    found = _known.get(type_)
    if found is None:
        found = _known[type_] = _fields(type_)
    return found


def _fields(type_: Any) -> Mapping[str, str]:
    if issubclass(type_, msgspec.Struct):
        return dict(zip(type_.__struct_encode_fields__, type_.__struct_fields__, strict=True))
    if hasattr(type_, "__dataclass_fields__"):
        return {name: name for name in type_.__dataclass_fields__}
    return {each.name: each.name for each in getattr(type_, "__attrs_attrs__", ())}


def _sorted(plain: Any, value: Any, encode: Encode) -> Any:
    """Return a plain value whose lists are sorted where ``value``, of which it was made, has sets."""
    if isinstance(plain, dict):
        if isinstance(value, Mapping):
            return {
                name: _sorted(part, inner, encode)
                for (name, part), inner in zip(plain.items(), value.values(), strict=True)
            }
        fields = fields_of(type(value))
        return {
            name: _sorted(part, getattr(value, fields[name]), encode) if name in fields else part
            for name, part in plain.items()
        }
    if isinstance(plain, list | tuple) and len(parts := list(parts_of(value))) == len(plain):
        items = [_sorted(part, inner, encode) for part, inner in zip(plain, parts, strict=True)]
        return sorted(items, key=encode) if isinstance(value, set | frozenset) else items
    return plain
