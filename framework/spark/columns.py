"""Serdes as Arrow columns: utf8, int64 and json without a Python step for each value; others as bytes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from framework.api.serdes import Codec, Serde, avro, bytes_serde, int64, ordered_int64, utf8
from framework.errors import SerdeError

_SIGN = 1 << 63
_BYTES = 8


class Column(NamedTuple):
    """How the bytes of one serde become a column; plain data, so that an executor needs none of the job's code."""

    name: str
    kind: str  # bytes, utf8, int64, ordered, avro; a serde of the user's own is bytes
    schema: Any = None

    @property
    def ddl(self) -> str:
        """Its part of a Spark schema."""
        types = {"utf8": "string", "avro": "string", "int64": "bigint", "ordered": "bigint"}
        return f"{self.name} {types.get(self.kind, 'binary')}"

    def array(self, cells: Sequence[bytes | None]) -> Any:
        """Return the Arrow array of encoded cells; None is null. Raises SerdeError naming the column."""
        try:
            if self.kind == "utf8":
                return pa.array(cells, pa.binary()).cast(pa.string())
            if self.kind in ("int64", "ordered"):
                return _integers(cells, ordered=self.kind == "ordered")
            if self.kind == "avro":
                decode = avro(self.schema).decode
                texts = [None if cell is None else msgspec.json.encode(decode(cell)).decode() for cell in cells]
                return pa.array(texts, pa.string())
        except (ValueError, TypeError, pa.ArrowInvalid) as error:
            raise SerdeError(f"column {self.name}: a cell is not {self.kind}: {error}") from error
        return pa.array(cells, pa.binary())


def column(name: str, serde: Serde[Any]) -> Column:
    """Return the column of a serde; json comes as its text."""
    if serde == utf8 or (isinstance(serde, Codec) and serde.name.startswith("json")):
        return Column(name, "utf8")
    if serde == int64:
        return Column(name, "int64")
    if serde == ordered_int64:
        return Column(name, "ordered")
    if serde != bytes_serde and isinstance(serde, Codec) and serde.name.startswith("avro("):
        return Column(name, "avro", serde.schema)
    return Column(name, "bytes")


def _integers(cells: Sequence[bytes | None], *, ordered: bool) -> Any:
    """Return int64 of 8 big-endian bytes each; ``ordered``: with the sign bit flipped."""
    nulls = [cell is None for cell in cells]
    filled = [bytes(_BYTES) if cell is None else cell for cell in cells]
    if any(len(cell) != _BYTES for cell in filled):
        raise ValueError(f"need {_BYTES} bytes each")
    raw = np.frombuffer(b"".join(filled), ">u8").astype(np.uint64)
    numbers = (raw ^ np.uint64(_SIGN) if ordered else raw).astype(np.int64)
    return pa.array(numbers, pa.int64(), mask=np.array(nulls) if any(nulls) else None)
