"""The record of a line: its value, its key and value, or a JSON object as `grete topic read --json` prints records."""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any, NamedTuple

import msgspec

from grete.api.serdes.hex_bytes import HexHeader, hex_bytes
from grete.api.serdes.key import Key, of_plain
from grete.api.serdes.serde import Serde, first_serde, holds_json
from grete.api.topics.reader import PRODUCER, SEQ
from grete.api.topics.topic import Topic, encode_record, uses_registry
from grete.protocol.frames import TIME_MS_MAX, encode_headers

RecordOf = Callable[[bytes], "Line"]  # raises SerdeError, ValueError, TypeError
_NULL = msgspec.Raw(b"null")


class LineForm(Enum):
    """The form of lines. Its value is what the numbers of a file's lines depend on."""

    VALUES = False
    KEYS = True
    JSON = "json"


class Line(NamedTuple):
    """The record of a line. ``timestamp_ms``: None: now. ``headers``: a cell."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: bytes | None = None


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """A record as JSON has it. Partition and offset are the log's: they are not taken over."""

    key: msgspec.Raw = _NULL
    value: msgspec.Raw = _NULL
    timestamp_ms: Annotated[int, msgspec.Meta(ge=-TIME_MS_MAX, le=TIME_MS_MAX)] | None = None
    headers: list[tuple[str, str | HexHeader | None]] = []
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


def record_of(topic: Topic[Any, Any], form: LineForm) -> RecordOf:
    """Return the function from a line to its record, whose bytes the topic's serdes take."""
    forms = {LineForm.VALUES: _of_value, LineForm.KEYS: _of_key_and_value, LineForm.JSON: _of_json}
    return forms[form](replace(topic, key=first_serde(topic.key)))


def _of_value(topic: Topic[Any, Any]) -> RecordOf:
    def of_line(text: bytes) -> Line:
        topic.value.decode(text)
        return Line(None, text)

    return of_line


def _of_key_and_value(topic: Topic[Any, Any]) -> RecordOf:
    def of_line(text: bytes) -> Line:
        key, tab, value = text.partition(b"\t")
        if not tab:
            raise ValueError("it has no tab: with --keys a line is KEY<tab>VALUE")
        if isinstance(topic.key, Key):
            key = topic.key.encode(topic.key.of_plain(msgspec.json.decode(key)))
        topic.key.decode(key)
        topic.value.decode(value)
        return Line(key, value)

    return of_line


def _of_json(topic: Topic[Any, Any]) -> RecordOf:
    row_of = msgspec.json.Decoder(_Row).decode

    def of_line(text: bytes) -> Line:
        row = row_of(text)
        if row.topic not in (None, topic.name):
            raise ValueError(f"it is of topic {row.topic!r}")
        headers = [
            (name, _of_header(value))
            for name, value in row.headers
            if name not in (PRODUCER, SEQ)  # the number that it had where it was read
        ]
        if uses_registry(topic):
            key, value, added = encode_record(topic, _plain(row.key), _plain(row.value), headers)
            headers = list(added)
        else:
            key, value = _bytes(topic.key, row.key, is_key=True), _bytes(topic.value, row.value)
        return Line(key, value, row.timestamp_ms, encode_headers(headers) if headers else None)

    return of_line


def _of_header(value: str | HexHeader | None) -> bytes | None:
    if isinstance(value, HexHeader):
        return bytes.fromhex(value.hex)
    return None if value is None else value.encode()


def _plain(part: msgspec.Raw) -> Any:
    return msgspec.json.decode(part)


def _bytes(serde: Serde[Any], part: msgspec.Raw, *, is_key: bool = False) -> bytes | None:
    """Return the bytes of a part. JSON stays as it is, but for keys: equal ones have equal bytes."""
    plain = _plain(part)
    if plain is None:
        return None
    if (data := hex_bytes(plain, serde)) is not None:
        return data
    if holds_json(serde):
        value = serde.decode(bytes(part))
        return serde.encode(value) if is_key else bytes(part)
    return serde.encode(of_plain(serde, plain))
