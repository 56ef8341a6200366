"""Blocks whose times overlap come out in the order of time, however few rows may be in memory."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from grete.spark.backfill.time_order import BlockPlace, TimeOrder

Row = tuple[int, str, int]  # time, path, number in the file


def files(rng: random.Random, count: int, rows: int, span: int) -> list[list[Row]]:
    """Return the rows of files, each in the order of time or in none; ``span``: of the times."""
    found = []
    for number in range(count):
        times = [rng.randrange(span) for _ in range(rows)]
        if rng.random() < 0.5:
            times.sort()
        found.append([(at, f"f{number}", place) for place, at in enumerate(times)])
    return found


def blocks(rows: list[list[Row]], size: int) -> Iterator[tuple[BlockPlace, Any, Any]]:
    """Yield blocks of ``size`` rows as Spark brings them: by their first times, then by place."""
    cut = [sorted(file[begin : begin + size]) for file in rows for begin in range(0, len(file), size)]
    for part in sorted(cut, key=lambda part: (part[0][0], part[0][1], min(row[2] for row in part))):
        times, paths, numbers = (list(column) for column in zip(*part, strict=True))
        batch = pa.RecordBatch.from_pydict({"time": times, "path": paths, "number": numbers})
        yield (paths[0], 0, min(numbers)), batch, np.array(times, np.int64)


def merged(order: TimeOrder, rows: list[list[Row]], size: int) -> list[Row]:
    """Return the rows as they come out."""
    return [tuple(row.values()) for batch in order.merged(blocks(rows, size)) for row in batch.to_pylist()]


@pytest.mark.parametrize("held_bytes_max", [0, 2_000, 1 << 20])
def test_rows_come_by_time_and_at_one_time_by_place(
    held_bytes_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of all kinds, from one time to many, with all in memory, a part, or next to nothing: none is left there."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    rng = random.Random(held_bytes_max)
    for _ in range(12):
        rows = files(rng, rng.choice([1, 3, 9]), rng.choice([1, 7, 90]), rng.choice([1, 3, 50, 10_000]))
        order = TimeOrder(held_bytes_max, rng.choice([0, 1_000]))
        assert merged(order, rows, rng.choice([1, 5, 30])) == sorted(row for file in rows for row in file)
    assert not any(tmp_path.iterdir())


def test_what_does_not_fit_waits_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that all span all times are on disk while they wait; the files are gone once somebody stops to read."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    rows = [[(at * 7_919 % 5_000, "f", at) for at in range(5_000)]]
    found: Any = TimeOrder(20_000, 1_000).merged(blocks(rows, 50))
    while not any(tmp_path.iterdir()):
        next(found)
    found.close()
    assert not any(tmp_path.iterdir())


def test_rows_in_order_wait_for_nothing() -> None:
    """Of files in the order of time each block passes as it is, and the next one is the only other in memory."""
    rows = [[(at // 2, f"f{number}", at) for at in range(number * 100, number * 100 + 100)] for number in range(3)]
    taken = 0

    def watched() -> Iterator[tuple[BlockPlace, Any, Any]]:
        nonlocal taken
        for block in blocks(rows, 25):
            taken += 1
            yield block

    for passed, batch in enumerate(TimeOrder().merged(watched()), 1):
        assert len(batch) == 25
        assert taken <= passed + 1
    assert taken == 12
