"""Makes the records of an input out of the bytes of a batch."""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

from grete.api.record import Record
from grete.api.registry.schema_registry import End, RegistrySerde
from grete.api.serdes.serde import Serde, decode_error, functions_of, may_be_none
from grete.api.topics.topic import Input, Topic
from grete.errors import FrameworkError, SerdeError
from grete.ports import LogRow
from grete.protocol.frames import decode_headers
from grete.protocol.record_batch import RecordBatch

RecordsOf = Callable[[RecordBatch, Iterator[bytes | None]], Iterator[Record[Any, Any]]]
Decode = Callable[[bytes | None, bytes | None], Any]  # a key or value, and the record's headers; either may be null
_SHOWN = 40  # of the bytes in an error: JSON's null is four, and may stand among spaces
_Column = Callable[[RecordBatch, Iterable[bytes | None], bool], Iterator[Any]]  # the last: some of them are null


def decoder(declared: Input[Any, Any]) -> RecordsOf:
    """Return the maker of a batch's records, lazily: column by column, so that no Python code runs per record."""
    topic = declared.topic.name
    key_column, value_column = _column(declared.topic, "key"), _column(declared.topic, "value")

    def records_of(batch: RecordBatch, keys: Iterator[bytes | None]) -> Iterator[Record[Any, Any]]:
        return map(
            Record,
            key_column(batch, keys, None in batch.keys),
            value_column(batch, batch.values, None in batch.values),
            batch.timestamps,
            repeat(()) if batch.headers is None else map(headers_of, batch.headers),
            repeat(topic),
            repeat(batch.source.partition),
            repeat(batch.offset) if isinstance(batch.offset, int) else batch.offset,
        )

    return records_of


def decoders(topic: Topic[Any, Any]) -> tuple[Decode, Decode]:
    """Return the functions that decode a key and a value of an input's topic, which may be null."""
    return _end_of(topic, "key"), _end_of(topic, "value")


def _end_of(topic: Topic[Any, Any], end: End) -> Decode:
    """Return the decoder of one end of a topic; bytes that its serde reads as None make no record (Topic.null)."""
    serde: Serde[Any] = getattr(topic, end)
    decode = decode_of(serde)
    if topic.null == "tombstone" or not may_be_none(serde):
        return decode

    def not_none(data: bytes | None, cell: bytes | None) -> Any:
        found = decode(data, cell)
        if found is None and data is not None:
            raise SerdeError(
                f"serde {serde.name} reads the {end} {data[:_SHOWN]!r} as null, and it is not null in the log: as a "
                f"value it is no tombstone, as a key it is not no key. Let its producer give no {end}; or take both as "
                f'null: Topic({topic.name!r}, …, null="tombstone")'
            )
        return found

    return not_none


def decode_of(serde: Serde[Any]) -> Decode:
    """Return the decoder of a key or value that may be null: a schema registry's serde reads the headers, too."""
    if isinstance(serde, RegistrySerde):
        decode_with = serde.decode_with
        return lambda data, cell: None if data is None else decode_with(data, headers_of(cell))
    decode = functions_of(serde)[1]
    return lambda data, _: None if data is None else decode(data)


def reader_of(topic: Topic[Any, Any]) -> Callable[[int, LogRow], Record[Any, Any]]:
    """Return the function from a partition and a row to a record, for readers outside. It raises SerdeError."""
    key_of, value_of = decode_of(topic.key), decode_of(topic.value)

    def record_of(partition: int, row: LogRow) -> Record[Any, Any]:
        try:
            key, value = key_of(row.key, row.headers), value_of(row.value, row.headers)
        except Exception as error:
            if isinstance(error, FrameworkError) and not isinstance(error, SerdeError):
                raise
            raise SerdeError(
                f"topic {topic.name}, partition {partition}, offset {row.offset}: {_refusal(topic, row, error)}: read "
                "it with the serdes that wrote it; a dead letter has the bytes of what failed: "
                f"Topic({topic.name!r}, bytes_serde, bytes_serde)"
            ) from error
        return Record(key, value, row.timestamp_ms, headers_of(row.headers), topic.name, partition, row.offset)

    return record_of


def _refusal(topic: Topic[Any, Any], row: LogRow, error: Exception) -> SerdeError:
    """Return the error of the end that cannot be decoded."""
    if isinstance(error, SerdeError):
        return error
    for serde, data in ((topic.key, row.key), (topic.value, row.value)):
        try:
            decode_of(serde)(data, row.headers)
        except Exception as refusal:  # noqa: BLE001  # a serde may raise anything
            return decode_error(serde, data, refusal)
    return SerdeError(str(error))


def _column(topic: Topic[Any, Any], end: End) -> _Column:
    """Return the decoder of a column; where nothing is null, nor headers matter, without a step in Python for each."""
    serde, slow = getattr(topic, end), _end_of(topic, end)
    if isinstance(serde, RegistrySerde):
        return lambda batch, cells, _: map(slow, cells, repeat(None) if batch.headers is None else batch.headers)
    if topic.null == "refuse" and may_be_none(serde):
        return lambda _, cells, __: map(slow, cells, repeat(None))
    decode: Callable[[Any], Any] = functions_of(serde)[1]
    return lambda _, cells, nulls: map(slow, cells, repeat(None)) if nulls else map(decode, cells)


def headers_of(cell: bytes | None) -> tuple[tuple[str, bytes | None], ...]:
    """Return a record's headers."""
    return () if cell is None else decode_headers(cell)
