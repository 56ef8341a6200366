"""A database's own row for how far the rows of a task are released, ahead of its commits (D5). Both dialects."""

from collections.abc import Sequence
from typing import Any

from grete.api.sinks.sink import Owner, Released
from grete.errors import ConfigError, Fenced, Halted, TransientError
from grete.halts import HaltCode
from grete.sinks.sql_dialect import Dialect

RELEASED = "grete_released"
RELEASED_DDL = (
    f"CREATE TABLE {RELEASED} (job VARCHAR(255) NOT NULL, task VARCHAR(255) NOT NULL, owner VARCHAR(64) NOT NULL, "
    "generation BIGINT NOT NULL, seq BIGINT NOT NULL, t BIGINT NOT NULL, digest BIGINT NOT NULL, "
    "PRIMARY KEY (job, task))"
)


class ReleaseAccount:
    """The row of one task, for one of its generations. A transaction locks it: no other instance goes on meanwhile."""

    def __init__(self, dialect: Dialect, owner: Owner, generation: int, *, is_there: bool) -> None:
        """``is_there``: the row was made before, and is made no more."""
        self._dialect = dialect
        self._owner = owner
        self._generation = generation
        self._is_there = is_there
        self._where = f"job = {dialect.mark} AND task = {dialect.mark}"

    def take_over(self, connection: Any) -> Released:
        """Write our generation into the row; return how far it is. Raises Fenced, Halted, ConfigError."""
        doing = f"reading how far {self._owner.task} is released"
        self._make(connection)
        self._execute(connection, self._dialect.begin, doing=doing)
        released = self._read(connection, doing)
        statement = f"UPDATE {RELEASED} SET generation = {self._dialect.mark} WHERE {self._where}"  # noqa: S608  # our own
        self._execute(connection, statement, (self._generation, *self._owner[:2]), doing=doing)
        self._execute(connection, "COMMIT", doing=doing)
        return released

    def advance(self, connection: Any, after: int, upto: Released) -> None:
        """Move the row from ``after`` to ``upto``, in the transaction that is open. Raises Fenced, Halted."""
        mark, doing = self._dialect.mark, f"releasing outputs {after + 1} to {upto.seq} of {self._owner.task}"
        statement = (
            f"UPDATE {RELEASED} SET seq = {mark}, t = {mark}, digest = {mark} "  # noqa: S608  # our own
            f"WHERE {self._where} AND owner = {mark} AND generation = {mark} AND seq = {mark}"
        )
        parameters = (*upto, *self._owner, self._generation, after)
        if self._execute(connection, statement, parameters, doing=doing).rowcount == 1:
            return
        at = self._read(connection, doing)
        raise Halted(
            f"{self._dialect.name}: outputs of {self._owner.task} were to be released from {after + 1} on, and "
            f"{RELEASED} says that they are there up to {at.seq}: did anything but Grete change that row? Put it right "
            "and start again",
            code=HaltCode.SINK_CHANGED,
        )

    def _make(self, connection: Any) -> None:
        """Make the table and the row. A row of another owner that has nothing was left by a start without a commit."""
        marks = ", ".join([self._dialect.mark] * 7)
        try:
            connection.execute(self._dialect.begin)
            if connection.execute(self._dialect.has_table.format(RELEASED)).fetchone() is None:
                connection.execute(self._dialect.alone)
                connection.execute(RELEASED_DDL.replace("TABLE", "TABLE IF NOT EXISTS", 1))
            if not self._is_there:
                connection.execute(
                    f"INSERT INTO {RELEASED} VALUES ({marks}) ON CONFLICT (job, task) "  # noqa: S608  # our own
                    f"DO UPDATE SET owner = excluded.owner WHERE {RELEASED}.seq = 0",
                    (*self._owner, self._generation, 0, 0, 0),
                )
            connection.execute("COMMIT")
        except self._dialect.errors as error:
            doing = f"making table {RELEASED} (to make it yourself: {RELEASED_DDL})"
            failure = self._dialect.failure(error, doing)
            raise (failure if isinstance(failure, TransientError) else ConfigError(str(failure))) from error

    def _read(self, connection: Any, doing: str) -> Released:
        job, task, nonce = self._owner
        statement = (
            f"SELECT owner, generation, seq, t, digest FROM {RELEASED} "  # noqa: S608  # our own
            f"WHERE {self._where}{self._dialect.lock}"
        )
        found = self._execute(connection, statement, (job, task), doing=doing).fetchone()
        if found is None:
            raise Halted(
                f"{self._dialect.name}: the row of job {job!r}, task {task!r} was deleted from {RELEASED}: how far its "
                f"rows are released is not known any more. Put the row back as it was (its owner is {nonce!r}); or "
                "delete these rows, and start the job under another name",
                code=HaltCode.SINK_ACCOUNT_GONE,
            )
        owner, generation, *released = found
        if owner != nonce:
            raise Halted(
                f"{self._dialect.name}: {RELEASED} says that another job named {job!r} has released outputs 1 to "
                f"{released[0]} of {task}: two jobs of one name must not share a database; if this job was started "
                f"afresh and the rows of its earlier life may stay, delete the rows of {RELEASED} with job = '{job}' "
                "and start again",
                code=HaltCode.SINK_OF_ANOTHER_JOB,
            )
        if generation > self._generation:
            raise Fenced(
                f"{self._dialect.name}: generation {generation} of {task} writes there now, this is {self._generation}",
                task=task,
            )
        return Released(*released)

    def _execute(self, connection: Any, statement: str, parameters: Sequence[Any] = (), *, doing: str) -> Any:
        try:
            return connection.execute(statement, parameters)
        except self._dialect.errors as error:
            raise self._dialect.failure(error, doing) from error
