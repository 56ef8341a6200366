"""A Delta table of numbers, as a sink that a worker can be told by a text, and what is in it."""

from pathlib import Path

from deltalake import DeltaTable, Schema
from deltalake.schema import Field, PrimitiveType

from grete import json
from grete.sinks.delta import DeltaSink
from tests.contracts.sinks import Numbered, by_task


class NumbersSink(DeltaSink):
    """The sink to a place."""

    __module__ = DeltaSink.__module__  # whose lines a kill counts

    def __init__(self, place: str) -> None:
        super().__init__(place, json(Numbered))


def numbers_table(path: Path) -> None:
    """Make an empty table."""
    fields = [Field("task", PrimitiveType("string"), nullable=False), Field("number", PrimitiveType("long"))]
    DeltaTable.create(str(path), schema=Schema(fields))


def numbers_in(path: Path) -> dict[str, list[int]]:
    """Return task → its numbers, as another reader has them, sorted: a table has no order."""
    rows = DeltaTable(str(path)).to_pyarrow_table().sort_by("number").to_pylist()
    return by_task([Numbered(**row) for row in rows])
