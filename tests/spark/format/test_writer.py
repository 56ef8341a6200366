"""Spark writes state: as a whole or not at all, whatever becomes of its tasks, and workers go on from there (2.5)."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.spark.format.columns import column
from grete.spark.format.writer import partitioned
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import commits, settled_fold
from tests.state.pair_bulk_writes import feed, run
from tests.state.pair_job import job, observed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

REFERENCE = "tests.state.pair_job"
WORDS = [f"w{number}" for number in range(40)]


@pytest.fixture
def job_directory(tmp_path: Path) -> JobDirectory:
    """A job that has topics, and has not run."""
    job_directory = JobDirectory(tmp_path / "job")
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(job, log)
    log.close()
    return job_directory


def where(job_directory: JobDirectory, **more: str) -> dict[str, str]:
    """Return the options of the format."""
    return {"job": REFERENCE, "directory": str(job_directory.directory), "store": "count/counts"} | more


def counts(spark: "SparkSession", job_directory: JobDirectory, value: int, words: list[str] = WORDS) -> "DataFrame":
    """Return a table of words with the same count, placed as the job places them."""
    rows = spark.createDataFrame([(word, value) for word in words], "key string, value bigint")
    return partitioned(rows, **where(job_directory))


def save(frame: "DataFrame", job_directory: JobDirectory, mode: str = "overwrite", **more: str) -> None:
    """Write it."""
    frame.write.format("changelog").mode(mode).options(**where(job_directory, **more)).save()


def read(spark: "SparkSession", job_directory: JobDirectory) -> dict[str, int]:
    """Return the rows that Spark reads again; each key must be in its partition."""
    rows = spark.read.format("changelog").options(**where(job_directory)).load().collect()
    assert all(row.partition == partition_of(row.key.encode(), 2) for row in rows)
    return {row.key: row.value for row in rows}


def run_workers(job_directory: JobDirectory, *lines: tuple[str, str]) -> dict[str, int]:
    """Let real workers take these lines; return the counts that they have then."""
    return run(REFERENCE, job_directory.directory, *lines)


def test_workers_go_on_from_what_spark_wrote(spark: "SparkSession", job_directory: JobDirectory) -> None:
    """On a fresh job, over what workers have committed, and added to it; the offsets that it covers are not read."""
    save(counts(spark, job_directory, 5), job_directory)
    assert read(spark, job_directory) == dict.fromkeys(WORDS, 5)
    assert run_workers(job_directory, ("a", "w1 w2"), ("b", "w1 new")) == dict.fromkeys(WORDS, 5) | {
        "w1": 7,
        "w2": 6,
        "new": 1,
    }
    save(counts(spark, job_directory, 9, ["w1", "x"]), job_directory, "append")
    assert run_workers(job_directory, ("a", "x")) == dict.fromkeys(WORDS, 5) | {"w1": 9, "w2": 6, "new": 1, "x": 10}
    feed(job_directory.directory, job, ("a", "covered"))
    log = job_directory.open_log()
    ends = {str(p): log.bounds(TopicPartition(observed.name, p))[1] for p in range(2)}
    log.close()
    covered = str({observed.name: ends}).replace("'", '"')
    save(counts(spark, job_directory, 1, ["only"]), job_directory, offsets=covered)
    assert read(spark, job_directory) == {"only": 1}
    assert run_workers(job_directory, ("a", "only")) == {"only": 2}


def _kills_its_writer(once: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows on one by one; after ten of them, once, kill the Python process that writes them."""
    for batch in batches:
        for index in range(batch.num_rows):
            yield batch.slice(index, 1)
            if index == 10:
                try:
                    once.touch(exist_ok=False)
                except FileExistsError:
                    continue
                daemon = os.getppid()
                siblings = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
                for sibling in siblings:
                    if int(sibling) != os.getpid():
                        os.kill(int(sibling), signal.SIGKILL)


def _fails(once: Path | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass all rows on, then raise; only the first time if there is a file to remember it by."""
    yield from batches
    if once is not None:
        try:
            once.touch(exist_ok=False)
        except FileExistsError:
            return
    raise RuntimeError("this attempt is to fail")


Passing = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@pytest.mark.parametrize("trouble", [_kills_its_writer, _fails])
def test_a_task_that_is_tried_again_counts_once(
    spark: "SparkSession", job_directory: JobDirectory, tmp_path: Path, trouble: Callable[..., Any]
) -> None:
    """An executor process is killed as it writes, or fails when it has written all: the second attempt counts (2.5)."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    frame = counts(spark, job_directory, 3)
    passing: Passing = partial(trouble, tmp_path / "once")
    save(frame.mapInArrow(passing, frame.schema), job_directory)
    assert (tmp_path / "once").exists()
    assert read(spark, job_directory) == dict.fromkeys(WORDS, 3)
    attempts = set()
    log = job_directory.open_log()
    for wiring in all_wirings(job):
        attempts |= {at.commit.attempt for at in commits(log, wiring)}
    log.close()
    assert len(attempts) == 3  # two that were committed, and 0 of the stage that was not written
    assert run_workers(job_directory, ("a", "w1")) == dict.fromkeys(WORDS, 3) | {"w1": 4}


def test_a_job_that_fails_leaves_an_invalid_tail(spark: "SparkSession", job_directory: JobDirectory) -> None:
    """Nothing of it is visible, and the next one, or a worker, is not hindered (2.5)."""
    save(counts(spark, job_directory, 1), job_directory)
    frame = counts(spark, job_directory, 2)
    passing: Passing = partial(_fails, None)
    with pytest.raises(Exception, match="this attempt is to fail"):
        save(frame.mapInArrow(passing, frame.schema), job_directory)
    assert read(spark, job_directory) == dict.fromkeys(WORDS, 1)
    log = job_directory.open_log()
    folds = [settled_fold(log, wiring) for wiring in all_wirings(job)]
    log.close()
    assert [(fold.top, fold.in_doubt) for fold in folds] == [(2, None)] * 4
    assert run_workers(job_directory, ("a", "w1")) == dict.fromkeys(WORDS, 1) | {"w1": 2}


def test_rows_of_one_partition_in_two_spark_tasks_are_refused(
    spark: "SparkSession", job_directory: JobDirectory
) -> None:
    """One commit names one attempt; the error says what to do, and nothing counts."""
    rows = [(word, 1, partition_of(word.encode(), 2)) for word in WORDS]
    frame = spark.createDataFrame(rows, "key string, value bigint, partition int").repartition(2)
    with pytest.raises(Exception, match="let one Spark task write each partition"):
        save(frame, job_directory)
    log = job_directory.open_log()
    assert all(settled_fold(log, wiring).last is None for wiring in all_wirings(job))
    log.close()


def test_what_cannot_be_written_is_refused(spark: "SparkSession", job_directory: JobDirectory) -> None:
    """Before anything is claimed: columns, options; while it is written: a partition that the job has not."""
    bare = spark.createDataFrame([("a", 1)], "key string, value bigint")
    with pytest.raises(Exception, match=r"columns key string, value bigint; it takes key string, partition int, value"):
        save(bare, job_directory)
    with pytest.raises(Exception, match="option offsets: the job reads observed"):
        save(counts(spark, job_directory, 1), job_directory, offsets='{"other": {"0": 1}}')
    with pytest.raises(Exception, match=r"option offsets: observed\[1\] 7 is outside of \(0, 0\)"):
        save(counts(spark, job_directory, 1), job_directory, offsets='{"observed": {"1": 7}}')
    log = job_directory.open_log()
    assert log.bounds(all_wirings(job)[0].changelog) == (0, 0)
    log.close()
    with pytest.raises(Exception, match="partition 2 is not one of 0 to 1"):
        save(spark.createDataFrame([("a", 1, 2)], "key string, value bigint, partition int"), job_directory)
    with pytest.raises(ConfigError, match="option store = 'nope'"):
        partitioned(bare, **where(job_directory, store="nope"))


@pytest.mark.parametrize("serde_column", ["key", "value"])
def test_columns_survive(serde_column: str) -> None:
    """A column's values come back unchanged, nulls included, for each kind of serde."""
    from grete.api.serdes.serde import bytes_serde, int64, json, ordered_int64, utf8

    for serde, values in (
        (utf8, ["a", None, "ö\0"]),
        (int64, [1, None, -(2**63)]),
        (ordered_int64, [2**63 - 1, None, -1]),
        (bytes_serde, [b"", None, b"\xff"]),
        (json, ['{"a":1}', None, "[]"]),
    ):
        kept = column(serde_column, serde)
        assert kept.array(kept.cells(pa.array(values))).to_pylist() == values
