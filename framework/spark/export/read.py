"""Reads an export: the entries of a store at the checkpoint that its manifest names. Plain pyarrow, no Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from grete.errors import ConfigError
from grete.spark.export.manifest import read_manifest


def read_export(directory: Path, store: str) -> pa.Table:
    """Return key, value, partition and checkpoint_id (that wrote it) of a store, ``stage/store``.

    Raises ConfigError: no export is there, or it has no such store.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        raise ConfigError(f"{directory} holds no export: grete export JOB --to {directory}")
    found = [each for each in manifest.stores if store in (each.store, f"{each.stage}/{each.store}")]
    if len(found) != 1:
        known = ", ".join(f"{each.stage}/{each.store}" for each in manifest.stores)
        raise ConfigError(f"store {store!r}: {directory} has {known}")
    rows = pa.concat_tables([pq.read_table(directory / file.path) for file in found[0].files])
    rows = rows.append_column("at", pa.array(range(len(rows)), pa.int64()))
    flat = rows.select(["partition", "key", "at"])
    while any(map(pa.types.is_struct, flat.schema.types)):  # of a Key, by its parts
        flat = flat.flatten()
    last = flat.group_by([name for name in flat.column_names if name != "at"]).aggregate([("at", "max")])["at_max"]
    newest = rows.take(last)
    return newest.filter(pc.is_valid(newest["value"])).drop_columns(["at"])
