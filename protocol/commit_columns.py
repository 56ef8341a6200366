"""Tables of a commit in columns: in most columns all values are equal, and those of the others lie close together.

A column is the one value that all rows have, or a list: the least value, then the difference of each row to it. So what
all channels have in common costs nothing for each of them. The first column tells the number of rows: it is a list.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, repeat
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from grete.protocol.errors import DecodeError

IntColumn = int | list[int]
RowT = TypeVar("RowT", bound=Struct)


def first_column(values: Sequence[int]) -> list[int]:
    """Return the column that tells how many rows a table has."""
    least = min(values)
    return [least, *[value - least for value in values]]


def to_tables(rows: Iterable[Struct], of: int) -> list[tuple[Any, ...]]:
    """Return a table for consecutive rows whose first ``of`` fields are equal: these, then the others in columns."""
    tables = []
    for shared, same in groupby(map(astuple, rows), lambda row: row[:of]):
        first, *others = tuple(zip(*same, strict=True))[of:]
        tables.append((*shared, first_column(first), *map(_column, others)))
    return tables


def from_tables(kind: type[RowT], tables: Iterable[Sequence[Any]], of: int) -> tuple[RowT, ...]:
    """Return the rows. Raises DecodeError for columns that have not equally many."""
    return tuple(chain.from_iterable(map(kind, *map(repeat, each[:of]), *values_of(*each[of:])) for each in tables))


def _column(values: Sequence[int]) -> IntColumn:
    return values[0] if values.count(values[0]) == len(values) else first_column(values)


def values_of(first: list[int], *others: IntColumn) -> list[list[int]]:
    """Return the values of all columns of a table. Raises DecodeError where they have not equally many."""
    rows, found = len(first) - 1, []
    for each in (first, *others):
        if isinstance(each, int):
            found.append([each] * rows)
        elif len(each) == rows + 1 > 0:
            least = each[0]
            found.append([least + difference for difference in each[1:]] if least else each[1:])
        else:
            raise DecodeError(f"commit: a column of {len(each) - 1} values in a table of {rows} rows")
    return found
