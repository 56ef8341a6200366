"""A table of an SQL database as a sink: a task's rows of a checkpoint are applied in one transaction, once (S2)."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from grete.api.serdes.serde import Serde
from grete.errors import GraphError

V = TypeVar("V")

FROM_ENVIRONMENT = "env:"
POSTGRES = ("postgresql", "postgres")


@dataclass(frozen=True, slots=True, repr=False)
class Table(Generic[V]):
    """Rows of a table that exists already, in SQLite or PostgreSQL: to send is to insert, or with ``key`` to upsert.

    ``url``: a file's path (SQLite), ``postgresql://user@host/database``, or ``env:NAME`` for one in an environment
    variable when the task starts. ``table`` may be ``schema.table``. ``value`` holds a row while it waits for its
    checkpoint. The fields of a json(Struct) or json(dataclass) are the columns; for anything else, or other names,
    ``columns`` gives them, as names or as field → column. ``key``: the columns of a primary key or unique index.

    All tables of a task in one database change in one transaction per checkpoint. Raises GraphError for a declaration
    that contradicts itself; whether table and columns are there is looked up at the start, before anything is
    processed.
    """

    url: str
    table: str
    value: Serde[V]
    key: Sequence[str] = field(default=(), kw_only=True)
    columns: Sequence[str] | Mapping[str, str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check what can be checked without the database."""
        scheme, colon, _ = self.url.partition("://")
        if not self.url or (colon and scheme not in POSTGRES):
            raise GraphError(
                f"{self!r}: url must be a file's path (SQLite), postgresql://user@host/database or env:NAME"
            )
        if not all(self.table.split(".")) or self.table.count(".") > 1:
            raise GraphError(f"{self!r}: table must be a name or schema.name")
        columns = [*self.mapping().values()]
        if not columns or len(set(columns)) < len(columns):
            raise GraphError(f"{self!r}: columns {columns}: need at least one, and each once")
        strangers = [column for column in self.key if column not in columns]
        if isinstance(self.key, str) or strangers or len(set(self.key)) < len(self.key):
            raise GraphError(f"{self!r}: key={self.key!r}: need a list of its columns {columns}, each once")

    def mapping(self) -> dict[str, str]:
        """Return field of a row → column of the table. Raises GraphError if nothing says what the fields are."""
        if isinstance(self.columns, Mapping):
            return dict(self.columns)
        if self.columns is not None and not isinstance(self.columns, str):
            return {name: name for name in self.columns}
        schema: Any = getattr(self.value, "schema", None)
        if self.columns is None and isinstance(schema, type):
            if issubclass(schema, msgspec.Struct):
                return {name: name for name in schema.__struct_fields__}
            if dataclasses.is_dataclass(schema):
                return {each.name: each.name for each in dataclasses.fields(schema)}
        raise GraphError(
            f"{self!r}: serde {self.value.name} does not say what the columns are: use json(YourStruct), "
            "or give columns=['a', 'b']"
        )

    def __repr__(self) -> str:
        """Say which table, without the password."""
        return f"Table({without_password(self.url)!r}, {self.table!r})"


def without_password(url: str) -> str:
    """Return a url for people: what may be secret in it is left out, and nothing is shown of one that is malformed."""
    scheme, colon, _ = url.partition("://")
    if not colon:
        return url
    if is_malformed(url):
        return f"{scheme}://…"
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{scheme}://{user}{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def is_malformed(url: str) -> bool:
    """Tell whether a url's parts are not where they seem to be: then its password may be in any of them."""
    try:
        parts = urlsplit(url)
        return (parts.port or 0) < 0 or url.count("@") > ("@" in parts.netloc)
    except ValueError:
        return True
