"""The formats of a schema registry: a schema's text, and the serializers of confluent-kafka over it."""

import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import msgspec
from msgspec import inspect

from grete.api.serdes.avro_serde import Schema, avro
from grete.api.serdes.avro_unions import BRANCH, Branches
from grete.api.serdes.protobuf_serde import has_maps, protobuf
from grete.api.serdes.pydantic_models import functions, holds_model, parts_of
from grete.api.serdes.serde import Codec
from grete.api.serdes.serde import encode_json_first as encode_json  # a registry's serdes have one version
from grete.errors import ConfigError

Conf = dict[str, Any]  # properties of a serializer or deserializer

_NATIVE = (bytes, dt.datetime, dt.date, dt.time, decimal.Decimal, uuid.UUID)  # what fastavro takes as it is


@dataclass(frozen=True, slots=True)
class RegistryFormat:
    """One format of a registry. ``record``: the name of the record, for subjects; ``make``: its two functions."""

    kind: str
    name: str
    text: str
    record: str | None
    make: Callable[[Any, Conf, Conf], tuple[Any, Any]]
    message: Any = None  # the class of a protobuf message


def avro_format(schema: Schema, type_: Any) -> RegistryFormat:
    """Return the format of Avro records; values are of ``type_``, None: dicts. Raises ConfigError: no Avro schema."""
    name = avro(schema).name
    text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
    raw: Any = msgspec.json.decode(text)
    record = str(raw.get("name", raw.get("type")) if isinstance(raw, dict) else raw)
    if isinstance(raw, dict) and raw.get("namespace") and "." not in record:
        record = f"{raw['namespace']}.{record}"
    branches = Branches(fastavro.parse_schema(raw))
    try:
        _refuse_alike(branches, name, type_)
        to_plain, from_plain = _conversions(type_, _NATIVE)
    except TypeError as error:
        raise ConfigError(f"registry {name}: msgspec cannot decode into {type_}: {error}") from error
    names = bool(branches.confusable)
    if names:
        to_plain, from_plain = _with_branches(branches, to_plain, from_plain)

    def make(client: Any, write: Conf, read: Conf) -> tuple[Any, Any]:
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

        write = {**write, "validate.strict.allow.default": True}
        reader = AvroDeserializer(client, text, from_plain, return_record_name=names, conf=read)
        return AvroSerializer(client, text, to_plain, write), reader

    return RegistryFormat("AVRO", f"registry {name}", text, record, make)


def _with_branches(branches: Branches, to_plain: Any, from_plain: Any) -> tuple[Any, Any]:
    """Return conversions that keep the branch of a union which Python's types do not tell."""

    def chosen(value: Any, context: Any) -> Any:
        return branches.chosen(value if to_plain is None else to_plain(value, context))

    def marked(plain: Any, context: Any) -> Any:
        found = branches.marked(plain)
        return found if from_plain is None else from_plain(found, context)

    return chosen, marked


def _refuse_alike(branches: Branches, name: str, type_: Any) -> None:
    """Raise ConfigError for a type that does not tell the records of a union apart, which look alike."""
    if type_ is None or not (alike := branches.alike()) or _tags_branches(type_):
        return
    pairs = "; ".join(" and ".join(pair) for pair in alike)
    raise ConfigError(
        f"registry {name}: {getattr(type_, '__name__', type_)} does not tell the records of a union apart, whose "
        f'fields are alike ({pairs}): use structs of msgspec with tag_field="{BRANCH}" and tag= the name in the '
        f'schema; or leave the type out: values are dicts then, with the name under "{BRANCH}"'
    )


def _tags_branches(type_: Any) -> bool:
    """Tell whether structs in a type say which record they are."""
    return any(getattr(part, "tag_field", None) == BRANCH for part in parts_of(inspect.type_info(type_)))


def json_format(type_: Any) -> RegistryFormat:
    """Return the format of a type, or of a JSON schema of the user's own. Raises ConfigError: no schema."""
    declared = None if isinstance(type_, str | Mapping) else type_
    text = _json_schema(type_) if declared is None else _json_schema_of(declared)
    title = msgspec.json.decode(text).get("title")
    to_plain, from_plain = _conversions(declared, ())

    def make(client: Any, write: Conf, read: Conf) -> tuple[Any, Any]:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

        writer = JSONSerializer(text, client, to_plain, write, json_encode=encode_json)
        return writer, JSONDeserializer(text, from_plain, client, read)

    return RegistryFormat("JSON", f"registry json({title})", text, title, make)


def protobuf_format(message: Any) -> RegistryFormat:
    """Return the format of a message class. Raises ConfigError: it is none."""
    plain = protobuf(message)
    assert isinstance(plain, Codec)
    descriptor = message.DESCRIPTOR

    def make(client: Any, write: Conf, read: Conf) -> tuple[Any, Any]:
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

        writer = ProtobufSerializer(message, client, write)
        reader = ProtobufDeserializer(message, read, client)
        return (_with_sorted_maps(writer, plain.functions[0]) if has_maps(descriptor) else writer), reader

    text = encode_json(plain.schema).decode()
    return RegistryFormat("PROTOBUF", f"registry {plain.name}", text, descriptor.full_name, make, message)


def _conversions(type_: Any, native: tuple[type, ...]) -> tuple[Any, Any]:
    """Return the functions from a type's values to plain ones and back; None and None where values are plain already.

    ``native``: types that are plain in the format, though not in JSON.
    """
    if type_ is None:
        return None, None
    if not holds_model(type_):
        return (
            lambda value, _: msgspec.to_builtins(_checked(value, type_), builtin_types=native, order="deterministic"),
            lambda plain, _: msgspec.convert(plain, type_, builtin_types=native),
        )
    from pydantic import TypeAdapter

    adapter, write = TypeAdapter(type_), functions(type_, encode_json)[0]

    def to_plain(value: Any, _: object) -> Any:
        if not native:
            return msgspec.json.decode(write(value))
        python = adapter.dump_python(value, by_alias=True, warnings="error")
        return msgspec.to_builtins(python, builtin_types=native, order="deterministic")

    return to_plain, lambda plain, _: adapter.validate_python(plain)


def _checked(value: Any, type_: Any) -> Any:
    if isinstance(type_, type) and not isinstance(value, type_):
        raise TypeError(f"need a {type_.__name__}")
    return value


def _json_schema(schema: Schema) -> str:
    try:
        return schema if isinstance(schema, str) and msgspec.json.decode(schema) else encode_json(schema).decode()
    except msgspec.DecodeError as error:
        raise ConfigError(f"SchemaRegistry.json: not a JSON schema: {error}") from error


def _json_schema_of(type_: Any) -> str:
    """Return the JSON schema of a type, the same text in every process."""
    try:
        if holds_model(type_):
            from pydantic import TypeAdapter

            schema = TypeAdapter(type_).json_schema()
        else:
            schema = msgspec.json.schema(type_)
    except TypeError as error:
        raise ConfigError(f"SchemaRegistry.json: {type_!r} has no JSON schema: {error}") from error
    return encode_json({"title": getattr(type_, "__name__", str(type_)), **schema}).decode()


def _with_sorted_maps(write: Any, payload_of: Callable[[Any], bytes]) -> Callable[[Any, Any], bytes]:
    """Return a serializer that writes maps in one order in each process: protobuf's own order is by hashes."""

    def written(value: Any, context: Any) -> bytes:
        data, payload = write(value, context), payload_of(value)
        return bytes(data[: len(data) - len(payload)]) + payload

    return written
