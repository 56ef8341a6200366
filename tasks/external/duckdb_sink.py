"""Outputs as rows of a DuckDB file, each once: a sink of one's own, with nothing but the public API."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import duckdb

from grete import External, Input, Job, Output, Record, Task, Topic, json, utf8
from grete.errors import TransientError


class DuckDbSink:
    """A row for each output, and one for each task with its last checkpoint, in one transaction.

    DuckDB lets one process at a time open a file, so each call opens it and closes it again. grete.api.sinks.sink.Sink
    says what each method must keep.
    """

    def __init__(self, path: str) -> None:
        self.path, self.name = path, f"DuckDB {path}"
        self.task, self.checkpoint_id = "", -1
        self.values: list[str] = []

    def open(self, owner: Sequence[str]) -> int:
        self.task = "/".join(owner)  # job, task, and the id of the state: another job counts checkpoints of its own
        return self._run(self._create)

    def begin(self, checkpoint_id: int) -> bool:
        self.checkpoint_id, self.values = checkpoint_id, []
        return checkpoint_id > self._run(self._last)

    def write(self, entries: Sequence[tuple[str, bytes]]) -> None:
        self.values += [value.decode() for _, value in entries]

    def commit(self) -> None:
        self._run(self._apply)

    def close(self) -> None:
        self.values = []

    def _create(self, sql: duckdb.DuckDBPyConnection) -> int:
        sql.execute("CREATE TABLE IF NOT EXISTS output (task VARCHAR, value JSON)")
        sql.execute("CREATE TABLE IF NOT EXISTS applied (task VARCHAR PRIMARY KEY, checkpoint BIGINT)")
        return self._last(sql)

    def _last(self, sql: duckdb.DuckDBPyConnection) -> int:
        found = sql.execute("SELECT checkpoint FROM applied WHERE task = ?", [self.task]).fetchone()
        return int(found[0]) if found else -1

    def _apply(self, sql: duckdb.DuckDBPyConnection) -> int:
        sql.begin()
        if self.checkpoint_id > self._last(sql):  # else another process of the task has done it meanwhile
            sql.execute("INSERT INTO output SELECT ?, unnest(?::VARCHAR[])", [self.task, self.values])
            sql.execute("INSERT OR REPLACE INTO applied VALUES (?, ?)", [self.task, self.checkpoint_id])
        sql.commit()
        return self.checkpoint_id

    def _run(self, do: Callable[[duckdb.DuckDBPyConnection], int]) -> int:
        try:
            with duckdb.connect(self.path) as sql:
                return do(sql)
        except (duckdb.IOException, duckdb.TransactionException, duckdb.ConstraintException) as error:
            raise TransientError(f"{self.name}: {error}") from error  # another task or process has it: tried again


class Book(Task):
    """Keeps a ledger of payments."""

    payments = Input(Topic("payments", key=utf8, value=json))
    out = Output(External("ledger", json, partial(DuckDbSink, "ledger.duckdb")))

    def process(self, record: Record[str, Any]) -> None:
        self.out.send(None, {"who": record.key, **record.value})


job = Job("book", stages=[Book])
