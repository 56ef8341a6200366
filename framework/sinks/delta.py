"""A table of Delta Lake as a sink, without Spark: a checkpoint's rows, and that they were applied, are one commit (S2).

The commit names the checkpoint as the version of an application transaction (``txn``) of the task. A table keeps the
last one of each application, and of two commits of one that have seen the same table it takes the first alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from grete.api.serdes.serde import Serde, functions_of
from grete.api.sinks.external import External
from grete.api.sinks.sink import Entry, Owner
from grete.errors import ConfigError, FrameworkError, Halted, TransientError
from grete.halts import HaltCode
from grete.quoting import error_text, named_error, value_text

_NONE_YET = -1  # the checkpoint of a task that has applied nothing: no checkpoint is negative
_ROW_CHARS_MAX = 500  # of a row in an error

V = TypeVar("V")
_DeltaRow = Mapping[str, object]  # by the names of columns


def delta_table(
    name: str,
    url: str,
    value: Serde[V],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> External[V]:
    """Return the declaration of an Output whose rows are appended to a Delta table, which is there.

    ``name``: as of External. ``url``: a path, or a url that deltalake can open with ``storage_options``. ``value``: its
    values have a field for each column, as mappings or attributes. Needs the extra ``delta``.
    """
    return External(name, value, lambda: DeltaSink(url, value, storage_options))


class DeltaSink:
    """Appends one task's rows to a Delta table. Rows of a checkpoint wait in memory until it is committed."""

    def __init__(
        self,
        url: str,
        value: Serde[Any],
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"Delta table {url}"
        self._url, self._decode = url, functions_of(value)[1]
        self._options = dict(storage_options or {})
        self._table: Any = None
        self._schema: Any = None  # of Arrow
        self._application, self._checkpoint_id = "", _NONE_YET
        self._rows: list[_DeltaRow] = []

    def open(self, owner: Owner) -> int:
        """Load the table. Raises ConfigError: it is not there, or the extra is not installed."""
        self.close()
        try:
            import pyarrow as pa
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ImportError as error:
            raise ConfigError(f"{self.name}: it needs the extra 'delta': pip install 'grete[delta]'") from error
        self._application = "/".join(("grete", *owner))
        try:
            self._table = DeltaTable(self._url, storage_options=self._options)
        except TableNotFoundError as error:
            raise ConfigError(f"{self.name}: there is none: create it before the job starts") from error
        except Exception as error:  # the client of a store may raise anything
            raise self._failure(error, "opening it") from error
        self._schema = pa.schema(self._table.schema().to_arrow())
        return self._last()

    def begin(self, checkpoint_id: int) -> bool:
        """Read how far the table has the task's outputs; False if it has this checkpoint or a later one."""
        self._rows, self._checkpoint_id = [], checkpoint_id
        try:
            self._table.update_incremental()
        except Exception as error:  # the client of a store may raise anything
            raise self._failure(error, "reading its log") from error
        return checkpoint_id > self._last()

    def write(self, entries: Sequence[Entry]) -> None:
        """Take rows. Raises Halted: one does not fit the table."""
        rows = [self._row(self._decode(raw)) for _, raw in entries]
        self._fitting(rows)
        self._rows += rows

    def commit(self) -> None:
        """Append the rows, with the checkpoint, in one commit of the table, unless another instance has done it."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        mark = CommitProperties(app_transactions=[Transaction(self._application, self._checkpoint_id)])
        try:
            rows = self._fitting(self._rows)
            write_deltalake(self._table, rows, mode="append", commit_properties=mark)
        except FrameworkError:
            raise
        except Exception as error:  # the client of a store may raise anything
            if self.begin(self._checkpoint_id):
                raise self._failure(error, f"committing checkpoint {self._checkpoint_id}") from error
        self._rows = []

    def close(self) -> None:
        """Forget what is not committed: its file, if there is one, is in no commit."""
        self._table, self._rows = None, []

    def _last(self) -> int:
        found = self._table.transaction_version(self._application)
        return _NONE_YET if found is None else int(found)

    def _row(self, value: Any) -> _DeltaRow:
        names = self._schema.names
        try:
            row = value if isinstance(value, Mapping) else {name: getattr(value, name) for name in names}
        except AttributeError as error:
            raise self._refused(value, error) from error
        if row.keys() != {*names}:
            raise self._refused(row, f"it has the fields {sorted(map(str, row))}, the table the columns {names}")
        return {name: row[name] for name in names}  # as the columns are, in errors, too

    def _fitting(self, rows: Sequence[_DeltaRow]) -> Any:
        """Return rows as an Arrow table. Raises Halted, with the first one that does not fit."""
        import pyarrow as pa

        try:
            found = pa.Table.from_pylist(rows, schema=self._schema)
            for field, column in zip(self._schema, found.columns, strict=True):
                if column.null_count and not field.nullable:
                    raise ValueError(f"column {field.name} has no nulls")
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            for row in rows if len(rows) > 1 else ():
                self._fitting([row])
            raise self._refused(rows[0], error) from error
        else:
            return found

    def _refused(self, row: object, why: object) -> Halted:
        text = value_text(row)
        text = text if len(text) <= _ROW_CHARS_MAX else text[:_ROW_CHARS_MAX] + "…"
        return Halted(
            f"{self.name}: row {text} does not fit: {error_text(why)}. Checkpoint {self._checkpoint_id} of "
            f"{self._application} waits: change the table so that the row fits, then start again; nothing is lost",
            code=HaltCode.SINK_REFUSES,
        )

    def _failure(self, error: Exception, doing: str) -> FrameworkError:
        """Return Halted for what a person must change: the table's schema, or what it asks of its writers."""
        from deltalake.exceptions import DeltaProtocolError, SchemaMismatchError

        text = f"{self.name}: {doing}: {named_error(error)}"
        if isinstance(error, (DeltaProtocolError, SchemaMismatchError)):
            return Halted(text, code=HaltCode.SINK_REFUSES)
        return TransientError(f"{text}: it is tried again")
