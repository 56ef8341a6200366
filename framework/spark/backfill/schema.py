"""The rows that go from stage to stage, and to the driver: one schema for all that a task gives."""

import struct
from itertools import pairwise
from typing import Any

import pyarrow as pa

STATE, FRAME, OUTPUT, REPORT, PIECE = range(5)

# What a task's run gives. ``start``, ``channel``, ``first``: as of a Piece, for FRAME and PIECE; ``first`` of an OUTPUT
# is its number among the task's. A REPORT's value is JSON. ``refused``, ``offsets``: of a PIECE of an external input.
FIELDS = {
    "kind": "tinyint",
    "task": "int",
    "store": "int",
    "topic": "string",
    "partition": "int",
    "start": "bigint",
    "channel": "int",
    "first": "bigint",
    "timestamp": "bigint",
    "key": "binary",
    "value": "binary",
    "headers": "binary",
    "offsets": "binary",
    "refused": "string",
}
DDL = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
_ARROW = {"tinyint": pa.int8(), "int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in FIELDS.items()])


def batch(count: int, **columns: Any) -> Any:
    """Return a batch of SCHEMA: lists are columns, anything else goes into each row, other columns are null."""
    arrays = []
    for field in SCHEMA:
        value = columns.get(field.name)
        if value is None:
            arrays.append(pa.nulls(count, field.type))
        elif isinstance(value, list):
            arrays.append(pa.array(value, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), count))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def cells(column: Any) -> list[bytes | None]:
    """Return the cells of a binary column; those without nulls are cut by one call, as in grete.protocol.frames."""
    if column.null_count or not len(column):
        listed: list[bytes | None] = column.to_pylist()
        return listed
    _, offsets, data = column.buffers()
    ends = struct.unpack_from(f"<{len(column) + 1}i", offsets, 4 * column.offset)
    sizes = [end - begin for begin, end in pairwise(ends)]
    return list(struct.Struct(("%ds" * len(sizes)) % tuple(sizes)).unpack_from(data or b"", ends[0]))
