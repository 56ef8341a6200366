"""Describes the serdes of a job as JSON values that every process writes alike, and compares two such descriptions.

A shape is the description of a type: a text for a plain one, a list for what is made of others, and {"struct": n} for
the n-th of the classes that are described beside it. So a class may hold itself, and its own name does not matter.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect

from grete.api.serdes.avro_serde import AvroCodec, same_bytes_and_values, unreadable
from grete.api.serdes.key import Key
from grete.api.serdes.protobuf_serde import message_changes, shown_message
from grete.api.serdes.pydantic_models import bounds_of, config_of, default_of, fields_of, is_model, type_of
from grete.api.serdes.serde import Codec, Serde, topic_serde

Shape = Any  # str | list | {"struct": int}
Described = dict[str, Any]  # {"name": …} and, where the serde has one, "schema"
DescribedPart = dict[str, Any]  # a struct, with its "fields", or one of those

_PROTOBUF = "protobuf("
_AVRO = "avro("
_FACTORY = "made by a function"
_PLAIN = {
    inspect.AnyType: "any",
    inspect.NoneType: "None",
    inspect.BoolType: "bool",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "str",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytes",
    inspect.MemoryViewType: "bytes",
    inspect.DateTimeType: "datetime",
    inspect.TimeType: "time",
    inspect.DateType: "date",
    inspect.TimeDeltaType: "timedelta",
    inspect.UUIDType: "UUID",
    inspect.DecimalType: "Decimal",
    inspect.RawType: "raw",
}
_ITEMS = {
    inspect.ListType: "list",
    inspect.SetType: "set",
    inspect.FrozenSetType: "set",
    inspect.VarTupleType: "list",
    inspect.CollectionType: "list",
}


def describe_serde(serde: Serde[Any]) -> Described:
    """Return the serde's name, and its schema if it has one that is the same text in every process."""
    schema = getattr(serde, "schema", None)
    if schema is None or schema is Any:
        return {"name": serde.name}
    if isinstance(serde, Key):
        parts = [describe_serde(topic_serde(part)) for part in serde.parts]
        is_plain = all(part.keys() == {"name"} for part in parts)
        return {"name": serde.name} if is_plain else {"name": "Key", "schema": _text_of(parts)}
    if isinstance(serde, Codec) and serde.is_json:
        return {"name": "json", "schema": describe_type(schema)}
    if isinstance(serde, Codec) and serde.name.startswith(_PROTOBUF):
        return {"name": "protobuf", "schema": schema}
    if isinstance(serde, AvroCodec) and serde.was:
        return {"name": serde.name, "schema": _text_of(schema), "was": [_text_of(each) for each in serde.was]}
    text = schema if isinstance(schema, str) else _text_of(schema)
    return {"name": serde.name} if text is None else {"name": serde.name, "schema": text}


def _text_of(schema: object) -> str | None:
    """Return a schema as JSON text without its comments; None for an object whose text may differ in each process."""
    try:
        return msgspec.json.encode(
            _without_comments(msgspec.to_builtins(schema, order="sorted")), order="sorted"
        ).decode()
    except (TypeError, ValueError):
        return None


def _without_comments(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {name: _without_comments(value) for name, value in schema.items() if name != "doc"}
    return [_without_comments(each) for each in schema] if isinstance(schema, list | tuple) else schema


def describe_type(type_: Any) -> dict[str, Any]:
    """Return {"type": shape, "structs": [...]} of a type that msgspec can decode into."""
    found = _Describing()
    return {"type": found.shape(inspect.type_info(type_)), "structs": found.structs}


class _Describing:
    """Collects the classes with fields that a type is made of, in the order in which they are met."""

    def __init__(self) -> None:
        self.structs: list[DescribedPart] = []
        self._known: dict[type, int] = {}

    def shape(self, info: Any) -> Shape:
        """Return the shape of one type."""
        if isinstance(info, inspect.Metadata):
            return self.shape(info.type)
        if isinstance(info, inspect.UnionType):  # typing forgets in which order its members were written
            return ["one of", *sorted(map(self.shape, sorted(info.types, key=_name_of)), key=repr)]
        if isinstance(info, inspect.LiteralType):
            return ["value of", *sorted(map(repr, info.values))]
        if isinstance(info, inspect.EnumType):
            return ["value of", *sorted(repr(member.value) for member in info.cls)]
        if isinstance(info, inspect.DictType):
            return ["dict", self.shape(info.key_type), self.shape(info.value_type)]
        if isinstance(info, inspect.TupleType):
            return ["tuple", *map(self.shape, info.item_types)]
        if type(info) in _ITEMS:
            return [_ITEMS[type(info)], self.shape(info.item_type)]
        if is_model(getattr(info, "cls", None)):
            return {"struct": self._model(info.cls)}
        if hasattr(info, "fields"):
            return {"struct": self._struct(info)}
        return _plain(info)

    def _struct(self, info: Any) -> int:
        if info.cls in self._known:
            return self._known[info.cls]
        number = self._known[info.cls] = len(self.structs)
        options = getattr(info.cls, "__struct_config__", None)
        struct: DescribedPart = {
            "name": info.cls.__name__,
            "as": "list" if getattr(info, "array_like", isinstance(info, inspect.NamedTupleType)) else "object",
            "tag": None if getattr(info, "tag", None) is None else [info.tag_field, info.tag],
            "omits": bool(options is not None and options.omit_defaults),
        }
        self.structs.append(struct)
        struct["fields"] = [self._field(field) for field in info.fields]
        return number

    def _model(self, model: type) -> int:
        """Describe a model of pydantic as a struct of the same fields, so that one may become the other."""
        if model in self._known:
            return self._known[model]
        number = self._known[model] = len(self.structs)
        struct: DescribedPart = {"name": model.__name__, "as": "object", "tag": None, "omits": False}
        struct["extra"] = config_of(model).get("extra") or "ignore"
        self.structs.append(struct)
        struct["fields"] = [self._model_field(field) for field in fields_of(model)]
        return number

    def _model_field(self, field: Any) -> DescribedPart:
        info = type_of(field)
        shape = str(field[1].annotation) if info is None else self.shape(info)
        return {"name": field[0], "type": shape, "bounds": bounds_of(field), **_default(*default_of(field))}

    def _field(self, field: inspect.Field) -> DescribedPart:
        default = _default(field.default, field.default_factory)
        if not default and not field.required:
            default = {"default": "none"}
        return {"name": field.encode_name, "type": self.shape(field.type), **default}


def _default(default: Any, made_by: Any) -> dict[str, str]:
    if default is not msgspec.NODEFAULT:
        return {"default": _text_of(default) or type(default).__name__}
    if made_by is not msgspec.NODEFAULT:
        return {"default": f"{made_by.__name__}()" if made_by in (list, dict, set) else _FACTORY}
    return {}


def _name_of(info: Any) -> str:
    """Return the key by which the members of a union are ordered before they are described."""
    return f"{type(info).__name__} {getattr(getattr(info, 'cls', None), '__qualname__', '')}"


def _plain(info: Any) -> str:
    """Return the text of a plain type with its bounds."""
    known: str | None = _PLAIN.get(type(info))
    name = known or str(getattr(getattr(info, "cls", None), "__qualname__", type(info).__name__))
    names = () if isinstance(info, inspect.CustomType) else getattr(type(info), "__struct_fields__", ())
    bounds = [f"{bound}={getattr(info, bound)!r}" for bound in names if getattr(info, bound, None) is not None]
    return f"{name}({', '.join(bounds)})" if bounds and type(info) in _PLAIN else name


# --- Texts for people -------------------------------------------------------------------------------------------------


def shown(described: Described) -> str:
    """Return a serde's description in one line."""
    schema = described.get("schema")
    if schema is None:
        return str(described["name"])
    if isinstance(schema, str):
        was = f", was {len(described['was'])} others" if "was" in described else ""
        return f"{described['name']} {schema}{was}"
    if described["name"] == "protobuf":
        return f"protobuf({shown_message(schema)})"
    return f"json({_shown(schema['type'], schema['structs'], frozenset())})"


def _shown(shape: Shape, structs: list[DescribedPart], open_: frozenset[int]) -> str:
    if isinstance(shape, str):
        return shape
    if isinstance(shape, dict):
        struct, number = structs[shape["struct"]], shape["struct"]
        if number in open_:
            return str(struct["name"])
        fields = (_shown_field(field, structs, open_ | {number}) for field in struct["fields"])
        return f"{struct['name']}({', '.join(fields)})"
    kind, *parts = shape
    if kind == "value of":
        return " | ".join(parts)
    texts = [_shown(part, structs, open_) for part in parts]
    return " | ".join(texts) if kind == "one of" else f"{kind}[{', '.join(texts)}]"


def _shown_field(field: DescribedPart, structs: list[DescribedPart], open_: frozenset[int]) -> str:
    default = f" = {field['default']}" if "default" in field else ""
    return f"{field['name']}: {_shown(field['type'], structs, open_)}{default}"


# --- Comparison -------------------------------------------------------------------------------------------------------


def key_changes(before: Described, now: Described) -> list[str]:
    """Return the changes that make bytes of equal keys differ, or written ones unreadable: any but a class's name."""
    return [] if _bare(before) == _bare(now) else [f"was {shown(before)} and is {shown(now)}"]


def _bare(described: Any) -> Any:
    """Return a description without the names of classes."""
    if isinstance(described, dict) and "structs" in described:
        structs = [{key: part for key, part in each.items() if key != "name"} for each in described["structs"]]
        return {**described, "structs": structs}
    return {key: _bare(part) for key, part in described.items()} if isinstance(described, dict) else described


def value_changes(before: Described, now: Described) -> list[str]:
    """Return the changes that make written values unreadable, or read as something else."""
    schemas: tuple[Any, Any] = before.get("schema"), now.get("schema")
    if before["name"].startswith(_AVRO) and now["name"].startswith(_AVRO) and None not in schemas:
        return _avro_changes(before, now)
    if before["name"] != now["name"] or not all(isinstance(schema, dict) for schema in schemas):
        return key_changes(before, now)
    if before["name"] == "protobuf":
        return message_changes(*schemas)
    return _Comparing(*schemas).of(before["schema"]["type"], now["schema"]["type"], "")


def _avro_changes(before: Described, now: Described) -> list[str]:
    """Return the difference of two Avro schemas, unless the later one knows all that wrote before it."""
    old, new = ([*each.get("was", ()), each["schema"]] for each in (before, now))
    parsed = [[msgspec.json.decode(text) for text in texts] for texts in (old, new)]
    kept = all(map(same_bytes_and_values, *parsed))
    if kept and (len(new) == len(old) or (len(new) > len(old) and "was" in now)):
        return []
    differences = unreadable(parsed[0][-1], parsed[1][-1])
    reads = f"cannot read it: {'; '.join(differences)}" if differences else "can read it"
    return [f"was {shown(before)} and is {shown(now)}, which {reads}"]


class _Comparing:
    """Walks two types at once."""

    def __init__(self, before: Any, now: Any) -> None:
        self._before, self._now = before["structs"], now["structs"]
        self._seen: set[tuple[int, int]] = set()

    def of(self, before: Shape, now: Shape, where: str) -> list[str]:
        """Return the differences; ``where``: of which field, with a space behind it."""
        if isinstance(before, dict) and isinstance(now, dict):
            return self._structs(before["struct"], now["struct"], where)
        if isinstance(before, list) and isinstance(now, list) and before[0] == now[0]:
            if before[0] == "value of":
                if set(before) <= set(now):
                    return []
            elif len(before) == len(now):
                pairs = zip(before[1:], now[1:], strict=True)
                return [text for old, new in pairs for text in self.of(old, new, where)]
        elif before == now:
            return []
        texts = _shown(before, self._before, frozenset()), _shown(now, self._now, frozenset())
        return [f"{where}was {texts[0]} and is {texts[1]}"]

    def _structs(self, old: int, new: int, where: str) -> list[str]:
        if (old, new) in self._seen:
            return []
        self._seen.add((old, new))
        before, now = self._before[old], self._now[new]
        for what in ("as", "tag"):
            if before[what] != now[what]:
                texts = _written_as(before), _written_as(now)
                return [f"{where}{before['name']} was written {texts[0]} and is written {texts[1]}"]
        if before.get("extra") == "allow" != now.get("extra"):
            return [f"{where}{before['name']} kept fields that it does not name (extra='allow'), and does so no more"]
        fields = {field["name"]: field for field in now["fields"]}
        known = {field["name"]: field for field in before["fields"]}
        changes: list[str] = []
        if before["as"] == "list" and list(fields)[: len(known)] != list(known):
            return [f"{where}{before['name']} is written as a list, and its fields were {', '.join(known)}"]
        for name, field in known.items():
            at = f"field {name!r} of {before['name']}"
            if name not in fields:
                changes.append(f"{where}{at} is gone")
                continue
            changes += self.of(field["type"], fields[name]["type"], f"{at} ")
            more = {*fields[name].get("bounds", ())} - {*field.get("bounds", fields[name].get("bounds", ()))}
            if more:  # release 0.2.0 has pinned no bounds of models
                changes.append(f"{at} has a bound that it had not: {', '.join(sorted(more))}")
            default = fields[name].get("default")
            if field.get("default", default) != default:
                changes.append(f"{at} had the default {field['default']} and has {default or 'none'}")
        return changes + [
            f"field {name!r} of {before['name']} is new and has no default, so no value of before can be read"
            for name, field in fields.items()
            if name not in known and "default" not in field
        ]


def _written_as(struct: DescribedPart) -> str:
    tag = "" if struct["tag"] is None else f" with {struct['tag'][0]} = {struct['tag'][1]}"
    return f"as a JSON {struct['as']}{tag}"
