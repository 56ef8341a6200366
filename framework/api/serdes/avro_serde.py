"""The serde of Avro records, and what a schema cannot read of records that another one wrote."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import msgspec
from fastavro.schema import fingerprint, to_parsing_canonical_form

from grete.api.serdes.avro_unions import Branches
from grete.api.serdes.serde import Codec, Serde, shortened
from grete.errors import ConfigError

Schema = Mapping[str, Any] | str  # a parsed schema, or its JSON text
NamedTypes = dict[str, Any]  # full name → the type that a schema gives it

SINGLE_OBJECT = b"\xc3\x01"  # Avro's own encoding of one object: this mark, the schema's fingerprint, the record
_TAG_BYTES = 10  # the mark and the 8 bytes of the fingerprint
_PROMOTED = {  # writer's type → what a reader may have
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
}
_SILENT = ("doc", "aliases", "order", "default")  # attributes that the bytes of a record do not show


@dataclass(frozen=True, slots=True, eq=False)
class AvroCodec(Codec[Any]):
    """A serde of Avro records. ``was``: the schemas that wrote before, oldest first."""

    was: tuple[Any, ...] = ()


def avro(schema: Schema, *, was: Sequence[Schema] = ()) -> Serde[Any]:
    """Return a serde of schemaless Avro records: no header, no schema id. ``schema``: a parsed schema or its JSON text.

    ``was``, for the value of a store: the schemas that its values were written by, oldest first. Those are read still,
    and each new value has its schema's fingerprint before it (Avro's single-object encoding). Raises ConfigError if one
    is not an Avro schema, or ``schema`` cannot read what another one wrote.
    """
    raw, parsed = _parsed(schema)
    older = [_parsed(each) for each in was]
    for number, (before, _) in enumerate(older):
        if differences := unreadable(before, raw):
            raise ConfigError(f"avro: the schema cannot read values of was[{number}]: {'; '.join(differences)}")
    first, decode = _with_fingerprints(parsed, [each for _, each in older]) if older else _plain(parsed)
    name = raw.get("name", raw.get("type")) if isinstance(raw, Mapping) else raw
    kinds = {*_kinds(raw)}

    def codec(encode: Callable[[Any], bytes], **versions: Any) -> AvroCodec:
        return AvroCodec(f"avro({name})", (encode, decode), raw, was=tuple(each for each, _ in older), **versions)

    before = codec(first)
    if not kinds & {"map", "float", "double"}:
        return before
    key = codec(lambda value: first(_in_one_order(value, zero=True)), first=before)
    if "map" not in kinds:
        return codec(first, first=before, for_keys=key)
    return codec(lambda value: first(_in_one_order(value, zero=False)), first=before, for_keys=key)


def refuse_was(serde: object, where: str) -> None:
    """Raise ConfigError if a serde marks its values with a fingerprint: only the values of a store may have one."""
    if isinstance(serde, AvroCodec) and serde.was:
        raise ConfigError(
            f"{where}: {serde.name} has was=, so its bytes begin with a fingerprint, which only the value of a store "
            "may have: leave was= out here"
        )


def _parsed(schema: Schema) -> tuple[Any, Any]:
    try:
        raw: Any = msgspec.json.decode(schema) if isinstance(schema, str) else schema
        return raw, fastavro.parse_schema(raw)
    except Exception as error:
        raise ConfigError(f"avro: not a schema: {type(error).__name__}: {error}: {shortened(schema)}") from error


def _kinds(schema: Any) -> Iterator[str]:
    """Yield the texts in a schema, among them the kinds of its types; too many do no harm."""
    if isinstance(schema, str):
        yield schema
    elif isinstance(schema, Mapping | list | tuple):
        for part in schema.values() if isinstance(schema, Mapping) else schema:
            yield from _kinds(part)


def _in_one_order(value: Any, *, zero: bool) -> Any:
    """Return a value with its maps sorted: equal ones may have other orders. ``zero``: -0.0 becomes 0.0, too."""
    if isinstance(value, Mapping):
        return {name: _in_one_order(value[name], zero=zero) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return type(value)(_in_one_order(part, zero=zero) for part in value)
    return 0.0 if zero and isinstance(value, float) and not value else value


def _written(parsed: Any, value: Any, tag: bytes = b"") -> bytes:
    out = io.BytesIO(tag)
    out.seek(len(tag))
    fastavro.schemaless_writer(out, parsed, value, strict_allow_default=True)
    return out.getvalue()


def _read(data: bytes, start: int, writer: Any, reader: Any, *, names: bool) -> Any:
    stream = io.BytesIO(data)
    stream.seek(start)
    value = fastavro.schemaless_reader(stream, writer, reader, return_record_name=names)
    if stream.tell() != len(data):
        raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
    return value


def _plain(parsed: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    return _with_branches(
        parsed,
        lambda value: _written(parsed, value),
        lambda data, names: _read(data, 0, parsed, None, names=names),
    )


def _with_branches(
    parsed: Any, write: Callable[[Any], bytes], read: Callable[[bytes, bool], Any]
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return the functions that keep the branch of a union which Python's types do not tell, where there is one."""
    branches = Branches(parsed)
    if not branches.confusable:
        return write, lambda data: read(data, False)
    return lambda value: write(branches.chosen(value)), lambda data: branches.marked(read(data, True))


def _with_fingerprints(parsed: Any, older: list[Any]) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return the functions for values with a fingerprint; those without one are the oldest schema's."""
    writers = {_tag(each): each for each in (*older, parsed)}
    tag, oldest = _tag(parsed), older[0]

    def decode(data: bytes, names: bool) -> Any:
        writer, start = writers.get(data[:_TAG_BYTES]), _TAG_BYTES
        if writer is None:
            writer, start = oldest, 0
        return _read(data, start, writer, parsed, names=names)

    return _with_branches(parsed, lambda value: _written(parsed, value, tag), decode)


def _tag(parsed: Any) -> bytes:
    canonical = to_parsing_canonical_form(parsed)
    return SINGLE_OBJECT + bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


# --- Comparison -------------------------------------------------------------------------------------------------------


def same_bytes_and_values(before: Any, now: Any) -> bool:
    """Tell whether two raw schemas write and read alike: comments, aliases and defaults aside."""
    return bool(_bare(before) == _bare(now))


def _bare(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {name: _bare(value) for name, value in schema.items() if name not in _SILENT}
    return [_bare(each) for each in schema] if isinstance(schema, list | tuple) else schema


def unreadable(writer: Any, reader: Any) -> list[str]:
    """Return the reason why a reader's raw schema cannot read a writer's (Avro: schema resolution); empty: it can."""
    return _Resolving(writer, reader).of(writer, reader, "")


class _Resolving:
    """Walks two schemas at once."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writers: dict[str, Any] = {}
        self._readers: dict[str, Any] = {}
        _collect(writer, self._writers)
        _collect(reader, self._readers)
        self._seen: set[tuple[str, str]] = set()

    def of(self, writer: Any, reader: Any, where: str) -> list[str]:
        """Return the values that cannot be read; ``where``: of which field, with a space behind it."""
        writer, reader = _resolved(writer, self._writers), _resolved(reader, self._readers)
        if isinstance(writer, list):
            return [text for each in writer for text in self.of(each, reader, where)]
        if isinstance(reader, list):
            fits = any(not self._trial(writer, each) for each in reader)
            return [] if fits else [f"{where}was {_shown(writer)} and is {_shown(reader)}"]
        old, new = _type(writer), _type(reader)
        if old == new == "record":
            return self._records(writer, reader, where)
        if old == new == "enum":
            gone = [each for each in writer["symbols"] if each not in reader["symbols"]]
            lost = gone and "default" not in reader
            return [f"{where}{writer['name']} has no {', '.join(gone)} any more"] if lost else []
        if old == new in ("array", "map"):
            part = "items" if old == "array" else "values"
            return self.of(writer[part], reader[part], where)
        if old == new == "fixed" and writer["size"] != reader["size"]:
            return [f"{where}was {writer['size']} bytes and is {reader['size']}"]
        if _logical(writer) != _logical(reader) or (old != new and new not in _PROMOTED.get(old, ())):
            return [f"{where}was {_shown(writer)} and is {_shown(reader)}"]
        return []

    def _trial(self, writer: Any, reader: Any) -> list[str]:
        seen = self._seen.copy()
        texts = self.of(writer, reader, "")
        self._seen = seen
        return texts

    def _records(self, writer: Any, reader: Any, where: str) -> list[str]:
        old, new = writer["name"].rpartition(".")[2], reader["name"].rpartition(".")[2]
        if old != new and not {old, writer["name"]} & set(reader.get("aliases", ())):
            return [f"{where}was record {old} and is {new}, without it among its aliases"]
        if (old, new) in self._seen:
            return []
        self._seen.add((old, new))
        known = {field["name"]: field for field in writer["fields"]}
        texts = []
        for field in reader["fields"]:
            written = next((known[name] for name in (field["name"], *field.get("aliases", ())) if name in known), None)
            at = f"field {field['name']!r} of {new}"
            if written is not None:
                texts += self.of(written["type"], field["type"], f"{at} ")
            elif "default" not in field:
                texts.append(f"{at} is new and has no default")
        return texts


def _collect(schema: Any, names: NamedTypes) -> None:
    """Find the named types of a schema, under their full and their short names."""
    if isinstance(schema, list | tuple):
        for each in schema:
            _collect(each, names)
    elif isinstance(schema, Mapping):
        if "name" in schema and schema.get("type") in ("record", "error", "enum", "fixed"):
            short = schema["name"].rpartition(".")[2]
            names[schema["name"]] = names[short] = schema
            names[f"{schema.get('namespace', '')}.{short}"] = schema
        for part in ("type", "items", "values"):
            _collect(schema.get(part), names)
        for field in schema.get("fields", ()):
            _collect(field["type"], names)


def _resolved(schema: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(schema, str):
        return names.get(schema, names.get(schema.rpartition(".")[2], schema))
    if isinstance(schema, Mapping) and not isinstance(schema["type"], str):
        return _resolved(schema["type"], names)  # {"type": {…}} and {"type": […]} say no more than what is in them
    return list(schema) if isinstance(schema, tuple) else schema


def _type(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, Mapping) else schema)


def _logical(schema: Any) -> tuple[Any, ...]:
    if not isinstance(schema, Mapping) or "logicalType" not in schema:
        return ()
    return schema["logicalType"], schema.get("precision"), schema.get("scale")


def _shown(schema: Any) -> str:
    if isinstance(schema, list):
        return " | ".join(map(_shown, schema))
    name = schema.get("logicalType", schema.get("name", schema["type"])) if isinstance(schema, Mapping) else schema
    return str(name)
