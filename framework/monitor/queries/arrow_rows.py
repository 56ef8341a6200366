"""Answers about state as a stream of Arrow, if pyarrow is installed: numbers and text as they are, the rest as JSON."""

from importlib.util import find_spec
from typing import Any

import msgspec
from msgspec import UNSET

from grete.api.serdes.serde import Serde, int64, ordered_int64, utf8
from grete.monitor.queries.answers import AnsweredEntry, AnsweredRow, AnsweredRows
from grete.monitor.queries.question import Question

ARROW = "application/vnd.apache.arrow.stream"
NO_PYARROW = (
    "Arrow needs pyarrow, which is not installed where the job's page runs: pip install pyarrow there, or leave the "
    "header Accept out and take JSON"
)


def has_pyarrow() -> bool:
    """Tell whether answers can be Arrow."""
    return find_spec("pyarrow") is not None


def arrow_stream(question: Question, answer: AnsweredRows | AnsweredEntry) -> bytes:
    """Return the rows as columns; the metadata ``grete`` of the schema has the rest of the answer, as JSON."""
    import pyarrow as pa

    rest = msgspec.to_builtins(answer)
    if isinstance(answer, AnsweredEntry):
        rows = [AnsweredRow(partition=answer.partition, key=answer.key, value=answer.value)]
    else:
        rows = answer.rows
        del rest["rows"]
    window = question.window
    key_serde, value_serde = (question.store if window is None else window).key, (window or question.store).value
    columns = {
        "partition": pa.array([row.partition for row in rows], pa.int32()),
        "key": _column(pa, key_serde, [row.key for row in rows]),
        "value": _column(pa, value_serde, [None if row.value is UNSET else row.value for row in rows]),
    }
    if window is not None:
        columns["start"] = pa.array([row.start for row in rows], pa.int64())
        columns["end"] = pa.array([row.end for row in rows], pa.int64())
    table = pa.table(columns).replace_schema_metadata({"grete": msgspec.json.encode(rest)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _column(pa: Any, serde: Serde[Any], values: list[Any]) -> Any:
    if serde in (int64, ordered_int64) and all(value is None or type(value) is int for value in values):
        return pa.array(values, pa.int64())
    return pa.array([_text(serde, value) for value in values], pa.string())


def _text(serde: Serde[Any], value: Any) -> str | None:
    plain = value is None or (serde == utf8 and isinstance(value, str))
    return value if plain else msgspec.json.encode(value).decode()
