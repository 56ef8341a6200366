"""Serdes as Arrow columns: utf8, int64 and json without a Python step for each value; a Key by its parts; bytes."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from grete.api.jobs.job import Job
from grete.api.serdes.avro_serde import AvroCodec, avro
from grete.api.serdes.json_numbers import has_null
from grete.api.serdes.key import Key
from grete.api.serdes.serde import Codec, Serde, bytes_serde, first_serde, holds_json, int64, ordered_int64, utf8
from grete.api.store import Store
from grete.errors import SerdeError
from grete.job.loader import load_job

_SIGN = 1 << 63  # flipped, the bytes of negative numbers sort before those of positive ones
_BYTES = 8  # of an INT64


class KeyOf(NamedTuple):
    """A store whose key serde writes equal keys as equal bytes, which takes the job's code."""

    job: str  # as load_job takes it
    stage: str
    store: str
    serdes: int  # the version that the job has pinned


class Column(NamedTuple):
    """The column for the bytes of one serde. It is plain data, so executors seldom need the job's code."""

    name: str
    kind: str  # bytes, utf8, json, int64, ordered, avro, key; a serde of the user's own is bytes
    schema: Any = None  # of a key, the columns of its parts
    key_of: KeyOf | None = None  # of keys that are written in several ways: what to write them again by

    @property
    def type(self) -> str:
        """Its type in a Spark schema."""
        if self.kind == "key":
            return f"struct<{','.join(f'{part.name}:{part.type}' for part in self.schema)}>"
        types = {"utf8": "string", "json": "string", "avro": "string", "int64": "bigint", "ordered": "bigint"}
        return types.get(self.kind, "binary")

    @property
    def ddl(self) -> str:
        """Its part of a Spark schema."""
        return f"{self.name} {self.type}"

    def array(self, cells: Sequence[bytes | None]) -> Any:
        """Return the Arrow array of encoded cells; None is null. Raises SerdeError naming the column."""
        try:
            if self.kind in ("utf8", "json"):
                return pa.array(cells, pa.binary()).cast(pa.string())
            if self.kind in ("int64", "ordered"):
                return _integers(cells, ordered=self.kind == "ordered")
            if self.kind == "avro":
                decode = _avro(self.schema).decode
                texts = [None if cell is None else _json_text(decode(cell)) for cell in cells]
                return pa.array(texts, pa.string())
            if self.kind == "key":
                return self._struct(cells)
        except (ValueError, TypeError, pa.ArrowInvalid) as error:
            raise SerdeError(f"column {self.name}: a cell is not {self.kind}: {error}") from error
        return pa.array(cells, pa.binary())

    def decoded(self, cells: Any) -> Any:
        """Return the Arrow array of a large binary array without nulls. Raises SerdeError naming the column."""
        try:
            if self.kind in ("utf8", "json"):
                return cells.cast(pa.large_string()).cast(pa.string())
            if self.kind in ("int64", "ordered"):
                return _numbers(cells, ordered=self.kind == "ordered")
        except (ValueError, pa.ArrowInvalid) as error:
            raise SerdeError(f"column {self.name}: a cell is not {self.kind}: {error}") from error
        return cells.cast(pa.binary()) if self.kind == "bytes" else self.array(cells.to_pylist())

    def cells(self, array: Any) -> list[bytes | None]:
        """Return the encoded cells of an Arrow array, null as None. Raises SerdeError naming the column."""
        cells = self._cells(array)
        if self.key_of is None:
            return cells
        serde = _key_serde(self.key_of)
        return [None if cell is None else serde.encode(serde.decode(cell)) for cell in cells]

    def _cells(self, array: Any) -> list[bytes | None]:
        try:
            if self.kind in ("int64", "ordered"):
                return _eight_bytes(array.cast(pa.int64()), ordered=self.kind == "ordered")
            if self.kind == "bytes":
                return list(array.cast(pa.binary()).to_pylist())
            if self.kind == "key":
                return self._joined(array)
            texts = array.cast(pa.string())
            if self.kind == "avro":
                encode = _avro(self.schema).encode
                return [None if text is None else encode(msgspec.json.decode(text)) for text in texts.to_pylist()]
            encoded: list[bytes | None] = texts.cast(pa.binary()).to_pylist()
            if self.kind == "json":
                for cell in encoded:
                    if cell is not None:
                        msgspec.json.decode(cell)  # else the task's worker would be the first to notice
        except (ValueError, TypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SerdeError(f"column {self.name}: a cell cannot be {self.kind}: {error}") from error
        return encoded

    def _struct(self, cells: Sequence[bytes | None]) -> Any:
        _, split = _of_bytes(len(self.schema))
        rows = [None if cell is None else split(cell) for cell in cells]
        parts = [part.array([None if row is None else row[at] for row in rows]) for at, part in enumerate(self.schema)]
        nulls = pa.array([row is None for row in rows], pa.bool_())
        return pa.StructArray.from_arrays(parts, names=[part.name for part in self.schema], mask=nulls)

    def _joined(self, array: Any) -> list[bytes | None]:
        join, _ = _of_bytes(len(self.schema))
        parts = [part.cells(cells) for part, cells in zip(self.schema, array.flatten(), strict=True)]
        found = list[bytes | None]()
        for there, *row in zip(array.is_valid().to_pylist(), *parts, strict=True):
            if there and None in row:
                raise ValueError(f"{self.schema[row.index(None)].name} is null")
            found.append(join(row) if there else None)
        return found


def column(name: str, serde: Serde[Any]) -> Column:
    """Return the column of a serde; json comes as its text."""
    if serde == utf8:
        return Column(name, "utf8")
    if holds_json(serde):
        return Column(name, "json")
    if serde == int64:
        return Column(name, "int64")
    if serde == ordered_int64:
        return Column(name, "ordered")
    if isinstance(serde, AvroCodec):
        return Column(name, "avro", (serde.schema, serde.was))
    if isinstance(serde, Key):
        return Column(name, "key", tuple(map(column, serde.names, serde.parts)))
    return Column(name, "bytes")


def key_column(reference: str, job: Job, stage: str, store: Store[Any, Any]) -> Column:
    """Return the column of a store's keys, to be written. ``job`` has the version of its serdes."""
    found = column("key", store.key)
    in_ways = first_serde(store.key) is not store.key or (found.kind == "json" and not isinstance(store.key, Codec))
    return found._replace(key_of=KeyOf(reference, stage, store.name, job.serdes)) if in_ways else found


def _of_bytes(parts: int) -> tuple[Any, Any]:
    """Return (encode, decode) of a Key whose parts are bytes, as they are written within it."""
    return Key(*[bytes_serde] * parts).functions


@lru_cache(maxsize=4)  # stores that a query writes at a time
def _key_serde(of: KeyOf) -> Serde[Any]:
    job = load_job(of.job)
    job.write_by(of.serdes)
    return next(store.key for store in job.stage(of.stage).all_stores() if store.name == of.store)


def _avro(schemas: tuple[Any, tuple[Any, ...]]) -> Serde[Any]:
    schema, was = schemas
    return first_serde(avro(schema, was=was))  # maps as the JSON has them


def _json_text(value: Any) -> str:
    """Return a value as JSON; NaN and infinity, which JSON does not have, as texts, which Avro takes for a float."""
    text = msgspec.json.encode(value)
    return (msgspec.json.encode(_with_texts(value)) if has_null(text) else text).decode()


def _with_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_texts(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _integers(cells: Sequence[bytes | None], *, ordered: bool) -> Any:
    """Return int64 of 8 big-endian bytes each; ``ordered``: with the sign bit flipped."""
    nulls = [cell is None for cell in cells]
    filled = [bytes(_BYTES) if cell is None else cell for cell in cells]
    if any(len(cell) != _BYTES for cell in filled):
        raise ValueError(f"need {_BYTES} bytes each")
    raw = np.frombuffer(b"".join(filled), ">u8").astype(np.uint64)
    numbers = (raw ^ np.uint64(_SIGN) if ordered else raw).astype(np.int64)
    return pa.array(numbers, pa.int64(), mask=np.array(nulls) if any(nulls) else None)


def _eight_bytes(numbers: Any, *, ordered: bool) -> list[bytes | None]:
    """Undo ``_integers``."""
    raw = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    packed = (raw ^ np.uint64(_SIGN) if ordered else raw).astype(">u8").tobytes()
    cells = [packed[start : start + _BYTES] for start in range(0, len(packed), _BYTES)]
    return [cell if valid else None for cell, valid in zip(cells, numbers.is_valid().to_pylist(), strict=True)]


def _numbers(cells: Any, *, ordered: bool) -> Any:
    """Return int64 of a large binary array whose cells are 8 bytes each."""
    offsets = np.frombuffer(cells.buffers()[1], np.int64, len(cells) + 1, _BYTES * cells.offset)
    if len(cells) and not (np.diff(offsets) == _BYTES).all():
        raise ValueError(f"need {_BYTES} bytes each")
    raw = np.frombuffer(cells.buffers()[2], ">u8", len(cells), int(offsets[0])) if len(cells) else np.zeros(0, ">u8")
    raw = raw.astype(np.uint64)
    return pa.array((raw ^ np.uint64(_SIGN) if ordered else raw).view(np.int64), pa.int64())
