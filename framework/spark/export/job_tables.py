"""The state of a job at one checkpoint, and its dead letters, as tables of a query in DuckDB: those that it names."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.serdes.serde import functions_of
from grete.api.stateful.windows import WindowStore
from grete.api.store import Store
from grete.errors import ConfigError
from grete.job.dead_letters import letters, serdes_of
from grete.ports import LogReader
from grete.spark.format.columns import column
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.read.local_reader import decoded_row
from grete.state.read.shown import decoded
from grete.state.read.snapshot_reader import SnapshotReader

LETTERS = "letters"


class StoreTable(NamedTuple):
    """The table of a store: ``key``, ``value``, ``partition``, ``checkpoint_id``; of a window's also start and end."""

    stage: StageGraph
    store: Store[Any, Any]
    window: WindowStore[Any, Any] | None


class JobTables:
    """The tables by name: STORE, or STAGE.STORE where several stages have one of the name, and ``letters``."""

    def __init__(self, log: LogReader, job: Job, found: list[Snapshot]) -> None:
        """``found``: every task at the checkpoint."""
        self._log, self._job, self._reader = log, job, SnapshotReader(log, job, found)
        every = [
            StoreTable(stage, store, {id(w.panes): w for w in stage.windows.values()}.get(id(store)))
            for stage in job.stages
            for store in stage.all_stores()
        ]
        names = [each.store.shown for each in every]
        self.tables: dict[str, StoreTable] = {
            name if names.count(name) == 1 else f"{each.stage.shown}.{name}": each
            for name, each in zip(names, every, strict=True)
        }

    def query(self, text: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Return the names of the columns of a query, and its rows. Raises ConfigError: it is wrong, with the tables.

        What it names is in memory, each table as a whole.
        """
        sql = duckdb.connect(":memory:")
        try:
            for name in sorted(self._named(text)):
                table = self.tables.get(name)
                sql.register(name, self._letters() if table is None else self._entries(table))
            result = sql.execute(text)
            columns = [name for name, *_ in result.description or ()]
        except duckdb.Error as error:
            sql.close()
            there = ", ".join(f'"{name}"' for name in [*self.tables, LETTERS])
            raise ConfigError(f"the query: {error}\nthe tables are {there}") from error
        return columns, _rows(sql)

    def _named(self, text: str) -> set[str]:
        """Return the tables whose names a query has in it, be they tables there or not: no other one is read."""
        return {name for name in (*self.tables, LETTERS) if name.lower() in text.lower()}

    def _entries(self, table: StoreTable) -> pa.Table:
        stage, store, window = table
        keys: list[bytes] = []
        values: list[bytes] = []
        starts: list[int] = []
        ends: list[int] = []
        partitions: list[int] = []
        checkpoints: list[int] = []
        for partition in range(stage.partitions):
            at, before = self._reader.checkpoint(store, partition), len(keys)
            for key, value in self._reader.raw(store, b"", partition):
                if window is None:
                    keys.append(key)
                    values.append(value)
                    continue
                for each in window.windows_in(*decoded_row(store, key, value)):
                    keys.append(functions_of(window.key)[0](each.key))
                    values.append(functions_of(window.value)[0](each.value))
                    starts.append(each.start)
                    ends.append(each.end)
            partitions += [partition] * (len(keys) - before)
            checkpoints += [at] * (len(keys) - before)
        key_serde, value_serde = (store.key, store.value) if window is None else (window.key, window.value)
        columns = {"key": column("key", key_serde).array(keys), "value": column("value", value_serde).array(values)}
        if window is not None:
            columns |= {"start": pa.array(starts, pa.int64()), "end": pa.array(ends, pa.int64())}
        columns |= {"partition": pa.array(partitions, pa.int32()), "checkpoint_id": pa.array(checkpoints, pa.int64())}
        return pa.table(columns)

    def _letters(self) -> pa.Table:
        rows = []
        for letter in letters(self._log, self._job):
            key, value = (
                decoded(*each) for each in zip(serdes_of(self._job, letter), (letter.key, letter.value), strict=True)
            )
            place = letter.at.topic, letter.at.partition, letter.offset, letter.timestamp_ms
            rows.append((*place, letter.origin, letter.told.get("error", ""), key, value))
        names = ["topic", "partition", "offset", "timestamp_ms", "origin", "error", "key", "value"]
        kinds = [pa.string(), pa.int32(), pa.int64(), pa.int64(), *[pa.string()] * 4]
        cells = zip(*rows, strict=True) if rows else [()] * len(names)
        return pa.table({name: pa.array(cell, kind) for name, kind, cell in zip(names, kinds, cells, strict=True)})


def _rows(sql: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    with sql:
        while found := sql.fetchmany(1_000):
            yield from found
