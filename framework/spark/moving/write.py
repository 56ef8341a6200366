"""Writes the state of one task in an executor, as an attempt of a bulk write and as files for the task's worker."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from grete.spark.backfill.schema import cells
from grete.spark.format.options import LogSpec
from grete.state.write.bulk.bulk_write_attempt import Attempt, AttemptData, BulkWrite
from grete.stores.rocksdb.sst_snapshot import SstBuilder, SstFile


class WritePlan(NamedTuple):
    """The plan to write any task, for executors. ``stores``: task → its stores, which start empty."""

    where: LogSpec
    bulk_write: BulkWrite
    stores: dict[int, list[int]]
    built: str  # a folder that all executors see; empty: no files


class WriteReport(msgspec.Struct):
    """The result of one attempt; ``built``: the place of the same data as files."""

    written: AttemptData
    built: str = ""
    files: list[SstFile] = []


def write(plan: WritePlan, task: int, number: int, batches: Iterable[pa.RecordBatch]) -> WriteReport:
    """Write the rows of one task, which come by store and key, as attempt ``number``."""
    built = f"{plan.built}/{task}-{number}" if plan.built else ""
    builder = SstBuilder(Path(built)) if built else None
    log = plan.where.open_to_write()
    try:
        attempt = Attempt(log, plan.bulk_write, task, number, plan.stores[task])
        for batch in batches:
            stores = batch.column("store").to_pylist()
            keys, values = ([cell or b"" for cell in cells(batch.column(name))] for name in ("key", "value"))
            attempt.add(stores, keys, values)
            if builder is not None:
                builder.add(stores, keys, values)
        written = attempt.close()
        return WriteReport(written, built, [] if builder is None else builder.close())
    finally:
        log.close()
