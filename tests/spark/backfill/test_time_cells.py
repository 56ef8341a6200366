"""Histories as writers of tables leave them: what goes by time has the state that the order of time gives."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grete.execution.build import store_names
from grete.job.directory import JobDirectory
from grete.settings import Settings
from grete.spark.backfill.backfill import BackfillSpec, backfill
from grete.spark.backfill.history_checks import Accept, Accepted
from grete.spark.backfill.ranges import BackfillEnd
from grete.spark.format.options import LogSpec
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.snapshots import contents, segments, snapshots
from tests.spark.backfill.scene import Silent
from tests.support import time_cells
from tests.support.time_cells import STORES, Row, State, recount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

Format = Literal["parquet", "json"]
BEGIN_MS = 1_700_000_000_000
FAR_MS = 4_102_444_800_000  # of the year 2100
ROWS, FILES = 400, 3


class Shape(NamedTuple):
    """A history: whether each file has rows of all times, and what is in it beside plain rows."""

    spanning: bool = False
    far: bool = False  # one row of the year 2100
    twice: bool = False  # some rows again, in other files
    nulls: bool = False  # values that are null, and rows without a time


PLAIN, ALL = Shape(), Shape(spanning=True, far=True, twice=True, nulls=True)
SHAPES = [PLAIN, Shape(spanning=True), Shape(far=True), Shape(twice=True), Shape(nulls=True), ALL]


def files_of(shape: Shape, seed: int) -> list[list[Row | None]]:
    """Return the rows of each file; None is a row without a time."""
    rng = random.Random(seed)
    rows: list[Row | None] = []
    for number in range(ROWS):
        at = BEGIN_MS + 10 * rng.randrange(2 * ROWS)
        value = {"id": number, "at": at + 10 * rng.randrange(-300, 300)}
        rows.append(Row(at, rng.choice("abcdef"), None if shape.nulls and rng.random() < 0.1 else value))
    rows.sort(key=lambda row: 0 if row is None else row.at)
    if shape.twice:
        rows += rng.sample(rows, ROWS // 10)
    if shape.nulls:
        rows[7:7] = [None, None]
    if shape.far:
        rows.insert(len(rows) // 2, Row(FAR_MS, "a", {"id": ROWS, "at": FAR_MS}))
    if not shape.spanning:
        return [rows[len(rows) * n // FILES : len(rows) * (n + 1) // FILES] for n in range(FILES)]
    rng.shuffle(rows)
    return [rows[n::FILES] for n in range(FILES)]


def written(folder: Path, kind: Format, files: Sequence[Sequence[Row | None]]) -> str:
    """Write the files; return their folder."""
    folder.mkdir()
    for number, rows in enumerate(files):
        cells = [(None, "x", {"id": 0, "at": 0}) if row is None else row for row in rows]
        if kind == "json":
            lines = [json.dumps({"key": key, "value": value, "timestamp": at}) for at, key, value in cells]
            (folder / f"{number}.jsonl").write_text("\n".join(lines))
            continue
        texts = [None if value is None else json.dumps(value) for *_, value in cells]
        columns = {"key": [key for _, key, _ in cells], "value": pa.array(texts, pa.string())}
        times = pa.array([at for at, *_ in cells], pa.int64())
        pq.write_table(pa.table(columns | {"timestamp": times}), folder / f"{number}.parquet")
    return str(folder)


def in_order(files: Sequence[Sequence[Row | None]]) -> list[Row]:
    """Return the rows by time, then by file and place in it."""
    return sorted((row for rows in files for row in rows if row is not None), key=lambda row: row.at)


def built(spark: "SparkSession", directory: Path, history: dict[str, str]) -> dict[str, State]:
    """Backfill the job; return mode → state."""
    job, place, settings = time_cells.job, JobDirectory(directory), Settings()
    log = place.open_log()
    prepare(job, log, place, settings, fed=[*history])
    where = LogSpec("embedded", "", str(place.directory / "log.db"))
    accepted = Accepted(refused=1_000, kinds=frozenset({Accept.TIMES}))
    wanted = BackfillSpec(
        job, time_cells.__name__, where, settings, history, str(directory / "work"), accepted=accepted
    )
    backfill(spark, wanted, BackfillEnd(now=False, offsets={}), log, Silent())
    found = {mode: {name: dict[str, int]() for each in STORES.values() for name in each} for mode in MODES}
    for (stage, _), snapshot in zip(job.tasks(), snapshots(log, job), strict=True):
        names, (task, mode) = store_names(stage), stage.name.split("-")
        for store, entries in contents(segments(log, snapshot), frozenset(names)).items():
            if names[store] in STORES[task]:
                cells = {key.decode(): int.from_bytes(value) for key, (value, _) in entries.items() if value}
                found[mode][names[store]] |= cells
    log.close()
    return found


MODES = ("aligned", "deterministic")


def check(spark: "SparkSession", directory: Path, shape: Shape, kind: Format) -> None:
    """Compare each store in each mode with the recount."""
    clicks, views = files_of(shape, 1), files_of(shape._replace(far=False), 2)
    history = {
        topic: written(directory / topic, kind, files) for topic, files in (("clicks", clicks), ("views", views))
    }
    expected = recount(in_order(clicks), in_order(views))
    assert all(expected.values())
    found = built(spark, directory / "job", history)
    assert [(mode, name) for mode in MODES for name in expected if found[mode][name] != expected[name]] == []
    assert found == dict.fromkeys(MODES, expected)


def test_a_history_of_files_that_span_all_times(spark: "SparkSession", tmp_path: Path) -> None:
    """Rows in no order, some twice, some null, one of the year 2100: every store in both modes is the recount."""
    check(spark, tmp_path, ALL, "parquet")


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["parquet", "json"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_histories_of_every_shape(spark: "SparkSession", tmp_path: Path, shape: Shape, kind: Format) -> None:
    """Nine stores that go by time, in two modes, over a history of each kind."""
    check(spark, tmp_path, shape, kind)
