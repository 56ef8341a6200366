"""A schema registry, and the serdes of topics whose records name a schema of it.

A subject of the registry is named by a topic and one of its ends. So ``Topic`` asks such a serde for one of its own.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from grete.api.registry.registry_calls import check_framing, connect, of_a_record, of_a_schema, patiently
from grete.api.registry.registry_formats import RegistryFormat, avro_format, json_format, protobuf_format
from grete.api.serdes.serde import Serde, decode_error, encode_error
from grete.errors import ConfigError, FrameworkError

T = TypeVar("T")
RecordHeaders = Sequence[tuple[str, bytes | None]]
End = Literal["key", "value"]
Subject = Literal["topic", "record", "topic-record"]

_SUBJECTS = ("topic", "record", "topic-record")
_PLACES = ("payload", "header")


class SchemaRegistry:
    """A schema registry with Confluent's API; ``avro``, ``json`` and ``protobuf`` are serdes for the ends of a Topic.

    ``subject``: by which name a schema is registered: that of the topic with "-key" or "-value", of the record, or of
    both. ``schema_id``: where a record has it: before the payload, or, as a guid, in a header, which needs a registry
    that gives guids (Confluent Platform 8.1); both are read. ``register=False``: the schema must be there already.
    ``client``: properties of confluent-kafka's SchemaRegistryClient, such as ``basic.auth.user.info``,
    ``bearer.auth.token`` or ``ssl.ca.location``.

    Nothing is asked before a job starts, and each schema is asked for once in a process. The url ``mock://`` is a
    registry within the process, for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        subject: Subject = "topic",
        schema_id: Literal["payload", "header"] = "payload",
        register: bool = True,
        client: Mapping[str, Any] | None = None,
    ) -> None:
        """Declare the registry. Raises ConfigError for a value that is none of those above."""
        places: list[tuple[str, str, tuple[str, ...]]] = [
            ("subject", subject, _SUBJECTS),
            ("schema_id", schema_id, _PLACES),
        ]
        for name, value, known in places:
            if value not in known:
                raise ConfigError(f"SchemaRegistry: {name}={value!r}: need one of {', '.join(known)}")
        self.url = url
        self.subject = subject
        self.schema_id = schema_id
        self.register = register
        self._conf = dict(client or {})
        self._client: tuple[int, Any] | None = None  # the process that has made it

    def avro(self, schema: Mapping[str, Any] | str, type_: type[T] | None = None) -> Serde[Any]:
        """Return a serde of Avro records. ``schema``: a parsed schema or its JSON text, by which records are read, too.

        Values are dicts; with ``type_``, a dataclass, a struct or a model of pydantic, they are of that. Raises
        ConfigError if it is not an Avro schema.
        """
        return RegistrySerde(self, avro_format(schema, type_))

    @overload
    def json(self, type_: type[T]) -> Serde[T]: ...

    @overload
    def json(self, type_: Mapping[str, Any] | str) -> Serde[Any]: ...

    def json(self, type_: Any) -> Serde[Any]:
        """Return a serde of JSON with a schema: that of a dataclass, struct or model, or a JSON schema of your own.

        Raises ConfigError if the type has no JSON schema.
        """
        return RegistrySerde(self, json_format(type_))

    def protobuf(self, message: type[T]) -> Serde[T]:
        """Return a serde of protobuf messages. ``message``: a class that protoc has generated. Raises ConfigError."""
        return RegistrySerde(self, protobuf_format(message))

    def client(self) -> Any:
        """Return this process's client of confluent-kafka. Raises ConfigError if it cannot be made."""
        if self._client is None or self._client[0] != os.getpid():
            self._client = os.getpid(), connect(self.url, self._conf)
        return self._client[1]

    def close(self) -> None:
        """Close the connections of this process; for tests. What asks again connects again."""
        if self._client is not None and self._client[0] == os.getpid():
            self._client[1].close()
        self._client = None


class RegistrySerde:
    """The serde of a format, for one end of a topic. Two are equal when schema, subject and registry are."""

    def __init__(self, registry: SchemaRegistry, format_: RegistryFormat, topic: str = "", end: End = "value") -> None:
        """``topic``: "" until a Topic has asked for its own."""
        self.name = format_.name
        self.schema = format_.text
        self.topic, self.end = topic, end
        self.in_header = registry.schema_id == "header"
        self.header = f"__{end}_schema_id"
        self._registry, self._format = registry, format_
        self._functions: tuple[Any, Any, Any] | None = None  # the client, and what writes and reads by it

    def of(self, topic: str, end: End) -> "RegistrySerde":
        """Return the serde for one end of a topic."""
        return RegistrySerde(self._registry, self._format, topic, end)

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value, the schema id first.

        Raises as ``encode_with``, and ConfigError if the id belongs into a header.
        """
        if self.in_header:
            raise ConfigError(
                f"{self.name}: its schema id is in a header, and a Writer writes none: "
                'SchemaRegistry(…, schema_id="payload")'
            )
        return self.encode_with(value)[0]

    def decode(self, data: bytes) -> Any:
        """Return the value of bytes that begin with a schema id.

        Raises SerdeError, TransientError, ConfigError, as ``decode_with``.
        """
        return self.decode_with(data, ())

    def encode_with(self, value: Any) -> tuple[bytes, RecordHeaders]:
        """Return the bytes of a value, and the header with the schema id if it is not in them.

        Raises SerdeError: the value does not fit; ConfigError: the registry does not take the schema; TransientError:
        it does not answer.
        """
        write, _ = self._made()
        headers: list[tuple[str, bytes | None]] = []
        context = _context(self.topic, self.end, headers)
        try:
            return patiently(self._registry.url, lambda: write(value, context)), headers
        except FrameworkError:
            raise
        except Exception as error:
            refusal = of_a_schema(self._registry.url, self.subject(), error)
            raise (refusal or encode_error(self, value, error)) from error

    def decode_with(self, data: bytes, headers: RecordHeaders) -> Any:
        """Return the value of a record.

        Raises SerdeError: there is no schema id, the registry does not have that schema, or the topic's own cannot read
        what it wrote; TransientError: the registry does not answer; ConfigError: it refuses the credentials.
        """
        _, read = self._made()
        framed = (next((value for name, value in headers if name == self.header), None) or b"") + data
        try:
            check_framing(framed)
            return patiently(self._registry.url, lambda: read(framed, _context(self.topic, self.end, None)))
        except FrameworkError:
            raise
        except Exception as error:
            raise (of_a_record(self._registry.url, error) or decode_error(self, data, error)) from error

    def prepare(self) -> None:
        """Register the schema, which changes nothing if it is there, or look it up.

        Raises ConfigError: the registry does not take it; TransientError: it does not answer.
        """
        if self._format.message is not None:
            self.encode_with(self._format.message())  # its serializer alone knows the imported files
            return
        from confluent_kafka.schema_registry import Schema

        schema, client = Schema(self.schema, self._format.kind), self._registry.client()
        ask = client.register_schema if self._registry.register else client.lookup_schema
        try:
            patiently(self._registry.url, lambda: ask(self.subject(), schema))
        except FrameworkError:
            raise
        except Exception as error:
            raise (of_a_schema(self._registry.url, self.subject(), error) or error) from error

    def subject(self) -> str:
        """Return the name under which the schema is registered."""
        strategy = _strategies()[self._registry.subject]
        return str(strategy(_context(self.topic, self.end, None), self._format.record))

    def _made(self) -> tuple[Any, Any]:
        """Return the functions that write and read a value."""
        if not self.topic:
            raise ConfigError(f"{self.name}: a serde of a schema registry is for a Topic: {_ELSEWHERE}")
        client = self._registry.client()
        if self._functions is None or self._functions[0] is not client:
            from confluent_kafka.schema_registry import header_schema_id_serializer, prefix_schema_id_serializer

            strategy = {"subject.name.strategy": _strategies()[self._registry.subject]}
            place = header_schema_id_serializer if self.in_header else prefix_schema_id_serializer
            write = {"auto.register.schemas": self._registry.register, "schema.id.serializer": place, **strategy}
            self._functions = client, *self._format.make(client, write, strategy)
        return self._functions[1:]

    def __eq__(self, other: object) -> bool:
        """Compare by what is written, and where its schema is."""
        return isinstance(other, RegistrySerde) and self.identity == other.identity

    def __hash__(self) -> int:
        """Hash as equality compares."""
        return hash(self.identity)

    @property
    def identity(self) -> tuple[str, ...]:
        """A message, and the place of its schema."""
        return self.name, self.schema, self._registry.url, self.topic, self.end, str(self.in_header)


_ELSEWHERE = (
    "stores, windows, files and tables take avro(schema), json(Type) or protobuf(Message), which need no registry"
)


def refuse_registry(serde: object, where: str) -> None:
    """Raise ConfigError for a registry's serde in a place that is no topic: state is read with the job's code alone."""
    if isinstance(serde, RegistrySerde):
        raise ConfigError(f"{where}: {serde.name} is for a Topic: {_ELSEWHERE}")


def _context(topic: str, end: End, headers: Any) -> Any:
    from confluent_kafka.serialization import SerializationContext

    return SerializationContext(topic, end, headers)  # type: ignore[arg-type]  # its fields are these texts


def _strategies() -> dict[str, Any]:
    from confluent_kafka import schema_registry

    return {
        "topic": schema_registry.topic_subject_name_strategy,
        "record": schema_registry.record_subject_name_strategy,
        "topic-record": schema_registry.topic_record_subject_name_strategy,
    }
