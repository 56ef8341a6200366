"""Rows of files become blocks and come back: each in its key's partition, in the order of the files (2.5)."""

import random
import zlib
from typing import Any

import pyarrow as pa
import pytest

from framework.spark.backfill.blocks import ORDER, cutter, rows_of
from protocol.partitioner import partition_of

COUNT = 20_000  # of rows: several blocks to a partition
SPLITS = [("b/1", 0), ("a/2", 128), ("a/2", 0)]


def split(seed: int, places: list[tuple[str, int]]) -> list[Any]:
    """Return the batches of a split, of random sizes, some of which go over the end of a file; headers, too."""
    rng = random.Random(seed)
    rows = []
    for place in places:
        for number in range(COUNT // len(places)):
            key = None if rng.random() < 0.1 else b"key-%d" % rng.randrange(99)
            rows.append((*place, number, key, b"%d of %s" % (number, place[0].encode())))
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


@pytest.mark.parametrize("partitions", [1, 3, 40])
def test_blocks_are_the_rows_of_each_partition_in_the_order_of_the_files(partitions: int) -> None:
    """What Spark does in between, a shuffle and a sort of few large rows, is done here by hand."""
    splits = [split(1, SPLITS[:2]), split(2, SPLITS[2:])]
    expected: dict[int, list[Any]] = {}
    for row in sorted((r for s in splits for b in s for r in b.to_pylist()), key=lambda r: (r["_path"], r["_block"])):
        crc = zlib.crc32(row["value"]) % partitions
        number = crc if row["key"] is None else partition_of(row["key"], partitions)
        expected.setdefault(number, []).append((row["timestamp"], row["key"], row["value"]))
    blocks = [row for each in splits for batch in cutter(partitions)(each) for row in batch.to_pylist()]
    assert len(blocks) > 2 * len(splits)
    for number in range(partitions):
        ours = sorted((b for b in blocks if b["partition"] == number), key=lambda b: [b[name] for name in ORDER])
        batch = pa.RecordBatch.from_pydict({"rows": pa.array([b["rows"] for b in ours], pa.binary())})
        found = [row for each in rows_of([batch]) for row in each.to_pylist()]
        assert [(r["timestamp"], r["key"], r["value"]) for r in found] == expected.get(number, [])


def test_rows_that_are_no_blocks_pass() -> None:
    """An archive's rows come one by one, sorted by offset; empty batches are no rows."""
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"a"])})
    assert list(rows_of([batch.slice(0, 0), batch])) == [batch]
    assert list(cutter(3)([])) == []
