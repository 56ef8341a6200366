"""Text for commands and the page: rows of a partition, keys and values."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from grete.api.jobs.job import Job
from grete.api.serdes.hex_bytes import HexBytes, told_by_json
from grete.api.serdes.key import Key
from grete.api.serdes.serde import Serde, bytes_serde, int64, ordered_int64, utf8
from grete.api.topics.topic import Topic
from grete.errors import ConfigError, FrameworkError, SerdeError
from grete.execution.records.decoding import decode_of
from grete.job.named_topics import topics_there
from grete.logs.partition_reader import rows_left
from grete.ports import JobLogReader, LogReader, LogRow
from grete.protocol.ids import TopicPartition


def rows_from(log: LogReader, partition: TopicPartition, offset: int) -> Iterator[LogRow]:
    """Yield rows from ``offset`` on, or from where the log starts, up to the end as it is now."""
    start, end = log.bounds(partition)
    yield from rows_left(log, partition, max(offset, start), end)


def from_text(serde: Serde[Any], text: str) -> Any:
    """Return the key that a command-line argument names, by its serde. Raises ConfigError."""
    try:
        if serde == utf8:
            return text.replace("\\0", "\0")  # no argument can hold a NUL
        if serde == bytes_serde:
            return bytes.fromhex(text)
        if serde in (int64, ordered_int64):
            return int(text)
        if isinstance(serde, Key):
            return serde.of_plain(msgspec.json.decode(text))
        return serde.decode(text.encode())  # JSON; other serdes know what to do with text, or refuse it
    except (ValueError, TypeError, SerdeError) as error:
        raise ConfigError(f"{text!r} is not a key of serde {serde.name}: {error}") from error


def decoded(serde: Serde[Any], data: bytes | None, headers: bytes | None = None) -> str:
    """Return a key or value in one line, or its bytes if they are none of the serde's; ``headers``: of its record."""
    if data is None:
        return "null"
    try:
        return to_text(decode_of(serde)(data, headers))
    except Exception as error:
        if isinstance(error, FrameworkError) and not isinstance(error, SerdeError):
            raise
        return f"{data.hex()} (not {serde.name})"  # a dead letter keeps the bytes that came


def decoded_plain(serde: Serde[Any], data: bytes | None, headers: bytes | None = None) -> Any:
    """Return a key or value as JSON has it: HexBytes if its serde cannot read it, or JSON cannot tell what it is."""
    if data is None:
        return None
    try:
        shown = plain(decode_of(serde)(data, headers))
    except Exception as error:
        if isinstance(error, FrameworkError) and not isinstance(error, SerdeError):
            raise
        return HexBytes(data.hex(), not_=serde.name)
    return shown if told_by_json(shown, serde) else HexBytes(data.hex(), of=serde.name)


def plain(value: object) -> Any:
    """Return a value as JSON has it: bytes as hex digits, and what is no JSON as text."""
    if isinstance(value, bytes):
        return value.hex()
    try:
        return msgspec.to_builtins(value, enc_hook=_builtins)
    except (TypeError, ValueError):
        return repr(value)


def to_text(value: object) -> str:
    """Return a value in one line: text as it is but for control characters, anything else as JSON."""
    if isinstance(value, str):
        return printable(value).replace("\n", "\\n").replace("\t", "\\t")
    if isinstance(value, bytes):
        return value.hex()
    try:
        return printable_json(json.dumps(msgspec.to_builtins(value, enc_hook=_builtins), ensure_ascii=False))
    except (TypeError, ValueError):
        return printable(repr(value))


def _builtins(value: Any) -> Any:
    """Return a model of pydantic, or a protobuf message, as JSON has it. Raises TypeError for anything else."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)
    raise TypeError(f"{type(value).__name__} is not JSON")


def printable(text: str) -> str:
    """Return the text without characters that steer a terminal: names of files and words come from anywhere.

    Not only escapes: the controls of C1 do the same, and marks of direction make a text look like another one.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def printable_json(text: str) -> str:
    """Return a line of JSON without such characters, as JSON that means the same."""
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def external_topics(job: Job, log: JobLogReader | None = None) -> dict[str, Topic[Any, Any]]:
    """Return name → topic outside of the job, of those that it reads, those that it writes, and those records named."""
    known = {} if log is None else topics_there(job, log)
    topics: dict[str, Topic[Any, Any]] = {**job.external_sinks(), **known}
    externals = {topic for stage in job.stages for topic in job.topology().externals_of(stage.ordinal)}
    return topics | {t.name: t for stage in job.stages for t in stage.topics_read() if t.name in externals}


def last_rows(log: LogReader, partition: TopicPartition, count: int) -> list[LogRow]:
    """Return the last records, oldest first. Offsets are no count: the ends of transactions take some, too."""
    window = count
    while True:
        start, end = log.bounds(partition)
        begin = max(start, end - window)
        found = list(rows_from(log, partition, begin))
        if len(found) >= count or begin == start:
            return found[-count:]
        window *= 4
