"""Rows of files become blocks and come back: each in its key's partition, in the order of time (2.5)."""

import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grete.protocol.partitioner import partition_of
from grete.spark.backfill.blocks import DDL, ORDER, cutter, rows_of
from grete.spark.backfill.history import read_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 20_000  # of rows: several blocks to a partition
SPLITS = [("b/1", 0), ("a/2", 128), ("a/2", 0)]


def split(seed: int, places: list[tuple[str, int]], apart: int, nulls: float) -> list[Any]:
    """Return the batches of a split, of random sizes, some of which go over the end of a file; some have no time."""
    rng = random.Random(seed)
    rows = []
    for place in places:
        for number in range(COUNT // len(places)):
            key = None if rng.random() < 0.1 else b"key-%d" % rng.randrange(99)
            at = None if rng.random() < nulls else max(0, number - rng.randrange(apart))
            rows.append((*place, at, key, b"%d of %s" % (number, place[0].encode())))
    names = ("_path", "_block", "timestamp", "key", "value")
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
    batches, begin = [], 0
    while begin < len(rows):
        end = begin + rng.randrange(1, 9_000)
        columns = zip(*rows[begin:end], strict=True)
        batches.append(
            pa.RecordBatch.from_arrays([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], list(names))
        )
        begin = end
    return batches


def opened(blocks: list[dict[str, Any]], partition: int) -> list[tuple[Any, ...]]:
    """Return the rows of a partition; computed by hand, in place of Spark's shuffle and its sort of few large rows."""
    ours = sorted(
        (each for each in blocks if each["partition"] == partition), key=lambda each: [each[n] for n in ORDER]
    )
    kinds = {"path": pa.string(), "block": pa.int64(), "first": pa.int64(), "rows": pa.binary()}
    batch = pa.RecordBatch.from_pydict({n: pa.array([each[n] for each in ours], kind) for n, kind in kinds.items()})
    return [tuple(row.values()) for each in rows_of([batch]) for row in each.to_pylist()]


@pytest.mark.parametrize(("partitions", "apart", "own"), [(1, 1, False), (3, 50, False), (3, 9_000, True)])
def test_blocks_are_the_rows_of_each_partition_in_the_order_of_time(partitions: int, apart: int, *, own: bool) -> None:
    """Each partition has its keys' rows by time, at one time by file and place; ``own``: by a time of their own."""
    splits = [split(1, SPLITS[:2], apart, 0), split(2, SPLITS[2:], apart, 0)]
    rows = [row for each in splits for batch in each for row in batch.to_pylist()]
    expected: dict[int, list[Any]] = {}
    for row in sorted(rows, key=lambda r: (-r["timestamp"] if own else r["timestamp"], r["_path"], r["_block"])):
        crc = zlib.crc32(row["value"]) % partitions
        number = crc if row["key"] is None else partition_of(row["key"], partitions)
        expected.setdefault(number, []).append((row["timestamp"], row["key"], row["value"]))
    times_of = (lambda _, times: [-at for at in times]) if own else None
    blocks = [row for each in splits for batch in cutter(partitions, times_of)(each) for row in batch.to_pylist()]
    assert len(blocks) > 2 * len(splits)
    for number in range(partitions):
        assert opened(blocks, number) == expected[number]


def test_rows_without_a_time_stay_beside_their_neighbours() -> None:
    """They are no records, but none is lost, and those with a time are in their order."""
    batches = split(3, SPLITS[:1], 50, 0.2)
    blocks = [row for batch in cutter(1)(batches) for row in batch.to_pylist()]
    found = opened(blocks, 0)
    times = [at for at, *_ in found if at is not None]
    assert len(found) == COUNT > len(times)
    assert times == sorted(times)


def test_rows_that_are_no_blocks_pass() -> None:
    """An archive's rows come one by one, sorted by offset; empty batches are no rows."""
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"a"])})
    assert list(rows_of([batch.slice(0, 0), batch])) == [batch]
    assert list(cutter(3)([])) == []


ROWS = [40, 2_000, 300, 5_000]  # of the files, by name: Spark reads large ones first
SPLIT_BYTES = "8192"  # so that the large ones are read in several parts


def values_of(rows: "DataFrame") -> list[bytes]:
    """Return the values of the only partition, in the order in which its task gets them."""
    return [value for batch in rows_of(rows.toArrow().to_batches()) for value in batch.column("value").to_pylist()]


@pytest.fixture
def small_splits(spark: "SparkSession") -> "Iterator[SparkSession]":
    name = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(name)
    spark.conf.set(name, SPLIT_BYTES)
    yield spark
    spark.conf.set(name, before or "128MB")


@pytest.mark.spark
@pytest.mark.timeout(1_800)  # the first to come starts Spark
@pytest.mark.parametrize("archived", [False, True])
def test_spark_brings_parts_of_files_in_another_order_and_a_task_gets_them_in_theirs(
    small_splits: "SparkSession", tmp_path: Path, *, archived: bool
) -> None:
    """Large files come first, and parts of files apart: sorted by time and place, or by offset where rows have one."""
    expected: list[bytes] = []
    for name, count in enumerate(ROWS):
        values = [b"%d of %d" % (number, name) for number in range(count)]
        columns: dict[str, Any] = {"key": [b"k"] * count, "value": values, "timestamp": list(range(count))}
        if archived:
            offsets = range(len(expected), len(expected) + count)
            columns |= {"partition": [0] * count, "offset": list(offsets)}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=500)
        expected += values
    if not archived:  # all files have the same times
        expected.sort(key=lambda value: int(value.split()[0]))
    history = read_history(small_splits, str(tmp_path), "events", 1)
    as_it_comes = history.rows.coalesce(1) if archived else history.rows.mapInArrow(cutter(1), DDL).coalesce(1)
    assert values_of(as_it_comes) != expected
    assert values_of(history.by_partition(1)) == expected
