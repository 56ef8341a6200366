"""Makes the records of an input out of the bytes of a batch."""

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeVar

from framework.api.record import Record
from framework.api.serdes import functions_of
from framework.api.topic import Input
from protocol.frames import decode_headers
from protocol.record_batch import RecordBatch

T = TypeVar("T")
RecordsOf = Callable[[RecordBatch, Iterator[bytes | None]], Iterator[Record[Any, Any]]]


def decoder(declared: Input[Any, Any]) -> RecordsOf:
    """Return what makes the records of a batch, lazily: column by column, so that no Python code runs per record."""
    topic, nullable = declared.topic.name, decoders(declared)
    bare = functions_of(declared.topic.key)[1], functions_of(declared.topic.value)[1]

    def records_of(batch: RecordBatch, keys: Iterator[bytes | None]) -> Iterator[Record[Any, Any]]:
        key_of: Callable[[Any], Any] = nullable[0] if None in batch.keys else bare[0]
        value_of: Callable[[Any], Any] = nullable[1] if None in batch.values else bare[1]
        return map(
            Record,
            map(key_of, keys),
            map(value_of, batch.values),
            batch.timestamps,
            repeat(()) if batch.headers is None else map(headers_of, batch.headers),
            repeat(topic),
            repeat(batch.source.partition),
            repeat(batch.offset) if isinstance(batch.offset, int) else batch.offset,
        )

    return records_of


def decoders(declared: Input[Any, Any]) -> tuple[Callable[[bytes | None], Any], Callable[[bytes | None], Any]]:
    """Return the functions that decode a key and a value which may be null."""
    return _nullable(functions_of(declared.topic.key)[1]), _nullable(functions_of(declared.topic.value)[1])


def _nullable(decode: Callable[[bytes], T]) -> Callable[[bytes | None], T | None]:
    return lambda data: None if data is None else decode(data)


def headers_of(cell: bytes | None) -> tuple[tuple[str, bytes], ...]:
    """Return a record's headers."""
    return () if cell is None else decode_headers(cell)
