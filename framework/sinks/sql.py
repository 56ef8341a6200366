"""A database as a sink: a checkpoint's rows, and that they were applied, are one transaction (S2). Both dialects."""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from grete.api.serdes.json_numbers import refuse_not_finite
from grete.api.serdes.serde import encode_error, functions_of
from grete.api.sinks.sink import WAYS, Entry, Owner, Released
from grete.api.sinks.table import FROM_ENVIRONMENT, POSTGRES, Table
from grete.errors import ConfigError, FrameworkError, Halted, OutputRefused, SerdeError, TransientError
from grete.halts import HaltCode
from grete.quoting import value_text
from grete.sinks.sql_dialect import Dialect
from grete.sinks.sql_released import ReleaseAccount

ACCOUNT = "grete_applied"
ACCOUNT_DDL = (
    f"CREATE TABLE {ACCOUNT} (job VARCHAR(255) NOT NULL, task VARCHAR(255) NOT NULL, owner VARCHAR(64) NOT NULL, "
    "version BIGINT NOT NULL, PRIMARY KEY (job, task))"
)
_ROW_CHARS_MAX = 500  # of a row in an error
_NONE_YET = -1  # the checkpoint in the account of a task that has applied nothing: no checkpoint is negative

SqlRow = Sequence[Any]


def row_encoder(target: Table[Any]) -> Callable[[object], bytes]:
    """Return value → bytes of its row. It raises SerdeError if that would not make a row when it is applied."""
    (encode, decode), row_of, where = functions_of(target.value), _row_of(target), f"output to {target!r}: "
    kept = _kept_as_nan(target)

    def encoded(value: object) -> bytes:
        try:
            raw = encode(value)
            row = row_of(decode(raw))  # now, when it can still be refused: once committed it can not
            refuse_not_finite([part for part in row if not isinstance(part, kept)])
        except SerdeError as error:
            raise SerdeError(f"{where}{error}") from error
        except Exception as error:
            raise encode_error(target.value, value, error, where) from error
        return raw

    return encoded


def _kept_as_nan(target: Table[Any]) -> tuple[type, ...]:
    """Return the types of columns in which the database keeps NaN and infinity; SQLite has null, JSON has none."""
    url = os.environ.get(target.url.removeprefix(FROM_ENVIRONMENT), target.url)
    return (float, list) if url.partition("://")[0] in POSTGRES else ()


def _row_of(target: Table[Any]) -> Callable[[Any], SqlRow]:
    """Return decoded value → its values in the order of the columns. It raises SerdeError."""
    fields = list(target.mapping())
    names = set(fields)

    def row_of(value: Any) -> SqlRow:
        if isinstance(value, Mapping):
            if value.keys() != names:
                raise SerdeError(
                    f"a row has the fields {sorted(map(str, value))}, the table's columns are of {sorted(names)}: "
                    "give every field, None for what is missing, and no others"
                )
            return [value[name] for name in fields]
        try:
            return [getattr(value, name) for name in fields]
        except AttributeError as error:
            raise SerdeError(f"a row of {type(value).__name__}: {error}: need fields {sorted(names)}") from error

    return row_of


class _Writer(NamedTuple):
    """The writer of one output's rows."""

    table: str
    columns: list[str]
    statement: str
    decode: Callable[[bytes], Any]
    row_of: Callable[[Any], SqlRow]
    adapt: Callable[[str, Any], Any]

    def row(self, raw: bytes) -> list[Any]:
        """Return the parameters of the statement."""
        return list(map(self.adapt, self.columns, self.row_of(self.decode(raw))))


class SqlSink:
    """All tables of one task in one database. ``tables``: attribute of the Output → declaration."""

    def __init__(self, dialect: Dialect, tables: Mapping[str, Table[Any]]) -> None:
        self.name = dialect.name
        self.place: tuple[Any, ...] = ()  # since ``open``: which database it is, however its url is spelled
        self._dialect = dialect
        self._tables = tables
        self._connection: Any = None
        self._writers: dict[str, _Writer] = {}
        self._owner = Owner("", "", "")
        self._released: ReleaseAccount | None = None
        self._applies = self._releases = False
        self._checkpoint_id = _NONE_YET
        self._work = ""  # under way, for errors

    def expect(self, *, applies: bool, releases: bool) -> None:
        """Before ``open``: say which of our rows the state knows: of checkpoints, of releases. They are made no more.

        Without its row, how far the outputs are there is not known: a new row would let them come again.
        """
        self._applies, self._releases = applies, releases

    def open(self, owner: Owner) -> int | None:
        """Connect, look whether the rows will fit their tables, make our account of what is applied."""
        self.close()
        self._owner = owner
        self._connection = self._dialect.connect()
        try:
            return self._checked()
        except FrameworkError:
            self.close()
            raise

    def _checked(self) -> int:
        """Check all tables, make the account; return the checkpoint in it."""
        self._writers = {name: self._writer(table) for name, table in self._tables.items()}
        doing = f"making table {ACCOUNT} (to make it yourself: {ACCOUNT_DDL})"
        try:
            self._make_account()
        except self._dialect.errors as error:
            raise _as_config(self._dialect.failure(error, doing)) from error
        checkpoint_id = self._begin()
        self.place = tuple(self._execute(self._dialect.place, doing="reading which database it is").fetchone())
        self._execute("COMMIT", doing="reading what is applied")
        return checkpoint_id

    def begin(self, checkpoint_id: int) -> bool:
        """Begin a transaction that holds the task's account: no other process applies anything meanwhile."""
        self._checkpoint_id, self._work = checkpoint_id, f"checkpoint {checkpoint_id}"
        if self._begin() >= checkpoint_id:
            self._execute("ROLLBACK", doing="reading what is applied")
            return False
        return True

    def write(self, entries: Sequence[Entry]) -> None:
        """Write rows in the order they were sent; those of one table that follow one another go together."""
        index = 0
        for name, group in groupby(entries, itemgetter(0)):
            raws = [raw for _, raw in group]
            self._write(self._writers[name], raws, index)
            index += len(raws)

    def commit(self) -> None:
        """Write the checkpoint beside the rows and commit: both, or neither."""
        job, task, _ = self._owner
        doing = f"committing checkpoint {self._checkpoint_id} of {task}"
        mark = self._dialect.mark
        statement = f"UPDATE {ACCOUNT} SET version = {mark} WHERE job = {mark} AND task = {mark}"  # noqa: S608  # our own
        self._execute(statement, (self._checkpoint_id, job, task), doing=doing)
        self._execute("COMMIT", doing=doing)

    def last_released(self, generation: int) -> Released:
        """Take the rows over for a generation; return how far they are released."""
        self._released = ReleaseAccount(self._dialect, self._owner, generation, is_there=self._releases)
        try:
            return self._released.take_over(self._connection)
        except FrameworkError:
            self.close()
            raise

    def release(self, after: int, upto: Released, entries: Sequence[Entry]) -> None:
        """Write rows that no commit holds yet, and in the same transaction how far they go."""
        assert self._released is not None
        self._work = f"outputs {after + 1} to {upto.seq}"
        doing = f"releasing {self._work} of {self._owner.task}"
        self._execute(self._dialect.begin, doing=doing)
        self._released.advance(self._connection, after, upto)
        self.write(entries)
        self._execute("COMMIT", doing=doing)

    def close(self) -> None:
        """Drop the connection: the database takes back what is not committed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except self._dialect.errors:
                return  # it is gone, which is what was wanted

    def _make_account(self) -> None:
        execute, mark = self._connection.execute, self._dialect.mark
        execute(self._dialect.begin)
        if execute(self._dialect.has_table.format(ACCOUNT)).fetchone() is None:
            execute(self._dialect.alone)
            execute(ACCOUNT_DDL.replace("TABLE", "TABLE IF NOT EXISTS", 1))
        marks = ", ".join([mark] * 4)
        if not self._applies:
            # A row of another owner that has applied nothing was left by a start of ours that committed nothing.
            execute(
                f"INSERT INTO {ACCOUNT} VALUES ({marks}) ON CONFLICT (job, task) "  # noqa: S608  # our own
                f"DO UPDATE SET owner = excluded.owner WHERE {ACCOUNT}.version = {_NONE_YET}",
                (*self._owner, _NONE_YET),
            )
        execute("COMMIT")

    def _begin(self) -> int:
        """Begin a transaction, take the account; return the checkpoint in it. Raises Halted if it is another's."""
        job, task, nonce = self._owner
        doing, mark = f"reading what of {task} is applied", self._dialect.mark
        self._execute(self._dialect.begin, doing=doing)
        statement = f"SELECT owner, version FROM {ACCOUNT} WHERE job = {mark} AND task = {mark}{self._dialect.lock}"  # noqa: S608  # our own
        found = self._execute(statement, (job, task), doing=doing).fetchone()
        if found is None or found[0] != nonce:
            self.close()  # and the transaction with it
        if found is None:
            raise Halted(
                f"{self.name}: the row of job {job!r}, task {task!r} was deleted from {ACCOUNT}: how far its rows are "
                f"there is not known any more. Put the row back as it was (its owner is {nonce!r}); or delete these "
                "rows, and start the job under another name",
                code=HaltCode.SINK_ACCOUNT_GONE,
            )
        if found[0] != nonce:
            raise Halted(
                f"{self.name}: {ACCOUNT} says that another job named {job!r} has applied checkpoint {found[1]} of "
                f"{task}: two jobs of one name must not share a database; if this job was started afresh and the rows "
                f"of its earlier life may stay, delete the rows of {ACCOUNT} with job = '{job}' and start again",
                code=HaltCode.SINK_OF_ANOTHER_JOB,
            )
        return int(found[1])

    def _execute(self, statement: str, parameters: Sequence[Any] = (), *, doing: str) -> Any:
        try:
            return self._connection.execute(statement, parameters)
        except self._dialect.errors as error:
            raise self._dialect.failure(error, doing) from error

    # --- Rows ---

    def _writer(self, target: Table[Any]) -> _Writer:
        """Return the plan by which an output's rows are written. Raises ConfigError if they cannot fit the table."""
        table, columns = ".".join(map(quoted, target.table.split("."))), list(target.mapping().values())
        statement = insert_statement(table, columns, target.key, self._dialect.mark)
        doing = f"checking table {target.table} with columns {', '.join(columns)}"
        if target.key:
            doing += f" and the unique key {', '.join(target.key)}"
        probe = insert_statement(table, columns, target.key, "NULL")
        try:
            self._connection.execute(f"EXPLAIN {probe}")  # plans it, which checks names, the key and our rights
            adapt = self._dialect.adapter(self._connection, table)
        except self._dialect.errors as error:
            raise _as_config(self._dialect.failure(error, doing)) from error
        return _Writer(target.table, columns, statement, functions_of(target.value)[1], _row_of(target), adapt)

    def _write(self, writer: _Writer, raws: Sequence[bytes], first: int) -> None:
        """Write rows of one table. ``first``: the index of the first one, for OutputRefused."""
        doing = f"writing {writer.table}"
        rows: list[SqlRow] = []
        for raw in raws:
            try:
                rows.append(writer.row(raw))
            except Halted as error:  # a value that the type of its column does not have
                self._write(writer, raws[: len(rows)], first)
                answer = FrameworkError.__str__(error)
                raise OutputRefused(answer, f"{self._waits}{WAYS}", index=first + len(rows)) from error
        self._execute("SAVEPOINT rows", doing=doing)
        try:
            self._connection.cursor().executemany(writer.statement, rows)
        except self._dialect.errors as error:
            failure = self._dialect.failure(error, doing)
            if isinstance(failure, TransientError):
                raise failure from error
            raise self._blamed(writer, rows, failure, first) from error
        self._execute("RELEASE SAVEPOINT rows", doing=doing)

    def _blamed(self, writer: _Writer, rows: Sequence[SqlRow], failure: FrameworkError, first: int) -> FrameworkError:
        """Return the failure with the row that causes it: found by writing them one by one.

        Those before it stay written if it alone is refused.
        """
        doing, written, of_row = f"writing {writer.table}", 0, False
        self._execute("ROLLBACK TO SAVEPOINT rows", doing=doing)
        for row in rows:
            try:
                self._connection.execute(writer.statement, row)
                written += 1
            except self._dialect.errors as error:
                text = value_text(dict(zip(writer.columns, row, strict=True)))
                text = text if len(text) <= _ROW_CHARS_MAX else text[:_ROW_CHARS_MAX] + "…"
                failure = self._dialect.failure(error, f"{doing}, row {text}")
                of_row = self._dialect.refuses_row(error)
                break
        if isinstance(failure, TransientError):
            return failure
        if not of_row:
            return Halted(f"{failure}{self._waits}", code=HaltCode.SINK_REFUSES)
        self._execute("ROLLBACK TO SAVEPOINT rows", doing=doing)
        for row in rows[:written]:
            self._execute(writer.statement, row, doing=doing)
        self._execute("RELEASE SAVEPOINT rows", doing=doing)
        return OutputRefused(FrameworkError.__str__(failure), f"{self._waits}{WAYS}", index=first + written)

    @property
    def _waits(self) -> str:
        return (
            f": {self._work} of task {self._owner.task} waits: change the table, its constraints or the grants so that "
            "the row fits, then start again; nothing is lost"
        )


def insert_statement(table: str, columns: Sequence[str], key: Sequence[str], mark: str) -> str:
    """Return the INSERT of one row, or the upsert by ``key``. Names are quoted here, but for ``table``'s."""
    table, *columns = (name.replace("%", "%%") if "%" in mark else name for name in (table, *columns))
    names = ", ".join(map(quoted, columns))
    statement = f"INSERT INTO {table} ({names}) VALUES ({', '.join([mark] * len(columns))})"  # noqa: S608  # quoted
    if not key:
        return statement
    others = [f"{quoted(column)} = excluded.{quoted(column)}" for column in columns if column not in key]
    action = f"UPDATE SET {', '.join(others)}" if others else "NOTHING"
    return f"{statement} ON CONFLICT ({', '.join(map(quoted, key))}) DO {action}"


def quoted(name: str) -> str:
    """Return a name as standard SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def _as_config(failure: FrameworkError) -> FrameworkError:
    """Return the failure of a start: what can not heal by itself is a wrong declaration or a wrong database."""
    return failure if isinstance(failure, TransientError) else ConfigError(str(failure))
