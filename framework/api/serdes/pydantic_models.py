"""Pydantic models as types of JSON: found, described and written without an import of pydantic where no job uses it."""

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from grete.api.serdes.json_forms import canonical_of

T = TypeVar("T")

_SETS = (inspect.SetType, inspect.FrozenSetType)


def is_model(type_: object) -> bool:
    """Tell whether a class is a model, or a dataclass, of pydantic."""
    return isinstance(type_, type) and hasattr(type_, "__pydantic_fields__")


def holds_model(type_: Any) -> bool:
    """Tell whether a type is, or is made of, models of pydantic. Raises TypeError if msgspec cannot look into it."""
    return any(is_model(getattr(part, "cls", None)) for part in parts_of(inspect.type_info(type_)))


def functions(
    type_: type[T], encode: Callable[[object], bytes]
) -> tuple[Callable[[T], bytes], Callable[[T], bytes], Callable[[bytes], T]]:
    """Return (encode, encode a key, decode) of a type that holds models, as pydantic writes and checks them.

    ``encode`` writes plain values. Sets are sorted: pydantic writes them in the order of their hashes, which differs
    from process to process.
    """
    from pydantic import TypeAdapter

    adapter = TypeAdapter(type_)
    has_sets = any(isinstance(part, _SETS) for part in parts_of(inspect.type_info(type_)))

    def dumped(value: T) -> bytes:
        plain = adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        if has_sets:
            plain = _with_sorted_sets(plain, adapter.dump_python(value, by_alias=True), encode)
        return encode(plain)

    def key(value: T) -> bytes:
        plain = adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        return encode(canonical_of(plain, adapter.dump_python(value, by_alias=True), encode))

    return dumped, key, adapter.validate_json


def parts_of(info: Any) -> Iterator[Any]:
    """Yield the descriptions of a type and of all that it is made of, each class once."""
    yield from _parts(info, set())


def _parts(info: Any, seen: set[object]) -> Iterator[Any]:
    cls = getattr(info, "cls", None)
    if cls in seen:
        return
    if cls is not None:
        seen.add(cls)
    yield info
    inner: list[Any] = [field.type for field in getattr(info, "fields", ())]
    inner += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    inner += [getattr(info, name) for name in ("item_type", "key_type", "value_type", "type") if hasattr(info, name)]
    if is_model(cls):
        inner = [known for field in fields_of(cls) if (known := type_of(field)) is not None]
    for each in inner:
        yield from _parts(each, seen)


def fields_of(model: Any) -> list[Any]:
    """Return the fields of a model, each with its ``name`` in JSON beside what pydantic knows of it."""
    if not model.__pydantic_fields_complete__:
        model.model_rebuild()
    return [
        (field.serialization_alias or field.alias or name, field) for name, field in model.__pydantic_fields__.items()
    ]


def unread(type_: Any) -> str:
    """Return the field of a model in a type that is not read under the name by which it is written; empty: none.

    Such a value comes back without what it had there. Raises TypeError as ``holds_model`` does.
    """
    parts: list[Any] = [getattr(part, "cls", None) for part in parts_of(inspect.type_info(type_))]
    for model in filter(is_model, parts):
        for name, (written, field) in zip(model.__pydantic_fields__, fields_of(model), strict=True):
            if not field.exclude and written not in (read := _read_names(config_of(model), name, field)):
                return f"field {name!r} of {model.__name__} is written as {written!r} and read as {' or '.join(read)}"
    return ""


def alike(type_: Any) -> str:
    """Return two models of one union in a type that are written alike, so that the first is read for each; or nothing.

    Raises TypeError as ``holds_model`` does.
    """
    seen: set[type] = set()
    for part in parts_of(inspect.type_info(type_)):
        for union in _unions(getattr(part, "cls", None), seen):
            written: dict[str, str] = {}
            for model in filter(is_model, get_args(union)):
                fields = repr(sorted((name, repr(field.annotation)) for name, field in fields_of(model)))
                if fields in written:
                    return f"{written[fields]} and {model.__name__}"
                written[fields] = model.__name__
    return ""


def _unions(type_: Any, seen: set[type]) -> Iterator[Any]:
    """Yield the unions that a model is made of, as Python has them: msgspec knows none of several models."""
    if is_model(type_) and type_ not in seen:
        seen.add(type_)
        for _, field in fields_of(type_):
            yield from _unions(field.annotation, seen)
    if get_origin(type_) in (Union, UnionType):
        yield type_
    for part in get_args(type_):
        yield from _unions(part, seen)


def _read_names(config: Any, name: str, field: Any) -> list[str]:
    """Return the names in JSON by which a field is read; a path into what is below it counts as none."""
    alias = field.validation_alias or field.alias
    by_name = config.get("validate_by_name") or config.get("populate_by_name")
    names = [name] if alias is None or by_name else []
    if alias is not None and config.get("validate_by_alias", True):
        paths = [getattr(each, "path", [each]) for each in getattr(alias, "choices", [alias])]
        names += [str(path[0]) for path in paths if len(path) == 1]
    return names


def config_of(model: Any) -> Any:
    """Return the configuration of a model, or of a dataclass of pydantic."""
    return getattr(model, "model_config", None) or getattr(model, "__pydantic_config__", None) or {}


def bounds_of(field: tuple[str, Any]) -> list[str]:
    """Return the bounds of a field's values, as texts that are the same in each process: not its validators."""
    return sorted(text for each in field[1].metadata if " at 0x" not in (text := repr(each)))


def type_of(field: tuple[str, Any]) -> Any:
    """Return the description of a field's type; None if msgspec knows none."""
    try:
        return inspect.type_info(field[1].annotation)
    except TypeError:
        return None


def default_of(field: tuple[str, Any]) -> tuple[Any, Any]:
    """Return the default of a field and what makes one, as msgspec's fields have them."""
    info = field[1]
    if info.is_required():
        return msgspec.NODEFAULT, msgspec.NODEFAULT
    if info.default_factory is not None:
        return msgspec.NODEFAULT, info.default_factory
    return info.default, msgspec.NODEFAULT


def _with_sorted_sets(plain: Any, value: Any, encode: Callable[[object], bytes]) -> Any:
    """Return a plain value whose lists are sorted where ``value``, the same with types of Python, has sets."""
    if isinstance(plain, dict) and isinstance(value, dict):
        return {
            name: _with_sorted_sets(each, inner, encode)
            for (name, each), inner in zip(plain.items(), value.values(), strict=True)
        }
    if isinstance(plain, list) and isinstance(value, list | tuple | set | frozenset):
        items = [_with_sorted_sets(each, inner, encode) for each, inner in zip(plain, value, strict=True)]
        return sorted(items, key=encode) if isinstance(value, set | frozenset) else items
    return plain
