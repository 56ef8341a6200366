"""Writes the state of a job into Parquet files: first all of it, later what has changed since.

Files are written under names that no manifest has, then the manifest names them. What a killed export has left is
named by none, and the next one removes it.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.store import Store
from grete.errors import ConfigError
from grete.file_lock import open_lock, try_lock
from grete.ports import JobLogReader
from grete.spark.export.manifest import (
    NAME,
    ExportFile,
    ExportManifest,
    ExportStore,
    read_manifest,
    sync_directory,
    write_manifest,
)
from grete.spark.format.change_rows import StoreColumns, change_rows
from grete.spark.format.changes import BEGINNING, ChangePoint, decode_position, position_at, ranges
from grete.spark.format.columns import column
from grete.spark.format.options import LogSpec
from grete.spark.format.reader import StatePlan, state
from grete.state.read.checkpoints.nearest import AsOf
from grete.state.read.checkpoints.snapshots import snapshots_at

_COLUMNS = ["key", "value", "partition", "checkpoint_id"]
_SUFFIX = ".grete.parquet"  # files of other names are not touched


class Exported(NamedTuple):
    """The result of an export. ``full``: each "stage/store" that was written as a whole → why."""

    checkpoint_id: int
    rows: int
    full: dict[str, str]


def export(
    log: JobLogReader,
    job: Job,
    where: LogSpec,
    directory: Path,
    stores: list[tuple[StageGraph, Store[Any, Any]]],
    asked: AsOf | None,
    *,
    aligned: bool,
) -> Exported:
    """Bring the export in a directory to a checkpoint or a time, None: the newest.

    Raises ConfigError: nothing is committed, no such checkpoint, the directory holds a later one or something else.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with _alone(directory):
        before = read_manifest(directory)
        checkpoint_id = asked if isinstance(asked, int) else _found(log, job, stores[0][0], asked, aligned=aligned)
        _check(directory, job, stores, before, checkpoint_id)
        _remove_strays(directory, before)
        if before is not None and before.checkpoint_id == checkpoint_id:
            return Exported(checkpoint_id, 0, {})
        full: dict[str, str] = {}
        found = []
        for at, (stage, store) in enumerate(stores):
            end = position_at(log, job, stage, checkpoint_id, aligned=aligned)
            one = _Store(log, job, where, directory, stage, store, end)
            found.append(one.export(None if before is None else before.stores[at], full))
        sync_directory(directory)
        write_manifest(directory, ExportManifest(1, job.name, checkpoint_id, tuple(found)))
    known = set() if before is None else {file.path for each in before.stores for file in each.files}
    rows = sum(file.rows for each in found for file in each.files if file.path not in known)
    return Exported(checkpoint_id, rows, full)


class _Store:
    """One store on its way to a position."""

    def __init__(
        self,
        log: JobLogReader,
        job: Job,
        where: LogSpec,
        directory: Path,
        stage: StageGraph,
        store: Store[Any, Any],
        end: ChangePoint,
    ) -> None:
        self._log, self._job, self._where, self._directory = log, job, where, directory
        self._stage, self._end = stage, end
        key, value = column("key", store.key), column("value", store.value)
        number = stage.store_ids()[store.name]
        self._columns = StoreColumns(number, store.name, key, value, store.ttl_ms is not None)

    def export(self, before: ExportStore | None, full: dict[str, str]) -> ExportStore:
        """Return the store with the files that bring it to the end; ``full`` gets why it was written as a whole."""
        name = f"{self._stage.name}/{self._columns.name}"
        columns = dict(each.ddl.split() for each in (self._columns.key, self._columns.value))
        files: list[ExportFile] = []
        reason = "it is the first export"
        if before is not None:
            try:
                files = [*before.files, *self._changes(decode_position(before.position))]
            except _NoChangesError as error:
                reason = str(error)
        if before is None or not files:
            full[name] = reason
            files = self._full()
        return ExportStore(self._stage.name, self._columns.name, columns, self._end.encode(), tuple(files))

    def _changes(self, start: ChangePoint) -> list[ExportFile]:
        if start.places.keys() != self._end.places.keys():
            raise _NoChangesError("the job was rescaled, and keys have other partitions")
        found = []
        try:
            for at, (partition, part) in enumerate(ranges(self._log, self._job, self._stage, start, self._end)):
                batches = change_rows(self._log, part, self._columns)
                name = f"changes-{self._end.checkpoint_id}-{at}"
                found += self._write(name, "changes", partition, batches)
        except ConfigError as error:
            raise _NoChangesError(str(error)) from error
        return found

    def _full(self) -> list[ExportFile]:
        offsets = {number: place.offset for number, place in self._end.places.items()}
        plan = StatePlan(self._end.checkpoint_id, *self._columns)
        found = []
        for partition, snapshot in snapshots_at(self._log, self._job, self._stage, offsets):
            name = f"full-{self._end.checkpoint_id}-{partition}"
            found += self._write(name, "full", partition, state(self._where, plan, snapshot), even_empty=True)
        return found

    def _write(
        self, name: str, kind: str, partition: int, batches: Iterator[pa.RecordBatch], *, even_empty: bool = False
    ) -> list[ExportFile]:
        """Write a file, on disk when this returns; nothing for no rows."""
        path = self._directory / f"{self._stage.name}.{self._columns.name}.{name}{_SUFFIX}"
        rows, writer = 0, None
        for batch in batches:
            table = pa.Table.from_batches([batch]).drop_columns(["checkpoint_id"])
            table = table.rename_columns({"written": "checkpoint_id"}).select(_COLUMNS)
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
            rows += len(table)
        if writer is None:
            if not even_empty:
                return []
            writer = pq.ParquetWriter(path, self._schema())
        writer.close()
        with path.open("rb+") as file:
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return [ExportFile(path.name, kind, partition, self._end.checkpoint_id, rows, digest)]

    def _schema(self) -> pa.Schema:
        key, value = (each.array([]).type for each in (self._columns.key, self._columns.value))
        return pa.schema([("key", key), ("value", value), ("partition", pa.int32()), ("checkpoint_id", pa.int64())])


class _NoChangesError(Exception):
    """The store cannot be brought on by changes; why."""


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Refuse a second export into a directory. The lock ends with the process."""
    handle = open_lock(directory / ".lock")
    try:
        try:
            try_lock(handle)
        except BlockingIOError as error:
            raise ConfigError(f"another export writes into {directory}: wait until it has ended") from error
        yield
    finally:
        os.close(handle)


def _found(log: JobLogReader, job: Job, stage: StageGraph, asked: datetime | None, *, aligned: bool) -> int:
    found = position_at(log, job, stage, asked, aligned=aligned)
    if found == BEGINNING:
        raise ConfigError(f"job {job.name!r}: not every task has committed: there is no checkpoint to export")
    return found.checkpoint_id


def _check(
    directory: Path,
    job: Job,
    stores: list[tuple[StageGraph, Store[Any, Any]]],
    before: ExportManifest | None,
    checkpoint_id: int,
) -> None:
    """Refuse a directory that cannot be brought to the checkpoint."""
    if before is None:
        if others := sorted(path.name for path in directory.iterdir() if not _is_ours(path)):
            raise ConfigError(f"{directory} holds {others[0]}, and no export: name an empty directory")
        return
    wanted = [f"{stage.name}/{store.name}" for stage, store in stores]
    held = [f"{each.stage}/{each.store}" for each in before.stores]
    if (before.job, held) != (job.name, wanted):
        raise ConfigError(
            f"{directory} holds {', '.join(held)} of job {before.job!r}, not {', '.join(wanted)} of {job.name!r}: "
            "name another directory"
        )
    if before.checkpoint_id > checkpoint_id:
        raise ConfigError(
            f"{directory} holds checkpoint {before.checkpoint_id}, a later one than {checkpoint_id}: name another "
            "directory",
            checkpoint_id=checkpoint_id,
        )


def _is_ours(path: Path) -> bool:
    return path.name.endswith((_SUFFIX, f"{NAME}.tmp")) or path.name == ".lock"


def _remove_strays(directory: Path, before: ExportManifest | None) -> None:
    """Remove the files that no manifest names."""
    known = set() if before is None else {file.path for each in before.stores for file in each.files}
    for path in directory.iterdir():
        if path.name.endswith((_SUFFIX, f"{NAME}.tmp")) and path.name not in known:
            path.unlink()
