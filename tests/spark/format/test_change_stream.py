"""``readStream.format("changelog")``: a query that is started again and again, with a real session and real workers."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.spark.format.changes import Position, wirings_of
from grete.spark.format.sources import ChangelogSource
from grete.state.write.rescale import rescale
from grete.testing.broker import Broker
from tests.spark.format.history import SETTINGS, Counts, counts_at, positions, run
from tests.spark.format.queries import Query, Reader
from tests.state.pair_job import job
from tests.worker.workers import LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark


def newest(directory: Path) -> tuple[Position, Counts]:
    """Return the newest position of the job, and the counts there."""
    log = JobDirectory(directory).open_log(create=False)
    found = positions(log)[-1]
    counts = counts_at(log, found)
    log.close()
    return found, counts


def test_a_query_goes_on_exactly_while_workers_are_killed(spark: "SparkSession", tmp_path: Path) -> None:
    """Started again after each run of the job, it has each change once: so does the table then changes."""
    directory = tmp_path / "job"
    run(directory, 4, frozenset({2}))
    whole = Query(spark, directory, tmp_path / "whole", startingCheckpoint="earliest", maxCheckpointsPerBatch="3")
    since = Query(spark, directory, tmp_path / "since", startingCheckpoint="snapshot")
    later = Query(spark, directory, tmp_path / "later", startingCheckpoint="latest")
    for query in (whole, since, later):
        query.run()
    first, at_first = newest(directory)
    assert whole.state() == since.state() == at_first
    assert whole.batches() >= 2
    before = len(since.rows())
    assert before == len(at_first)
    run(directory, 3, frozenset({1}))
    exact = Query(spark, directory, tmp_path / "exact", startingCheckpoint=str(first.checkpoint_id))
    for query in (whole, since, later, exact):
        query.run()
    _, at_last = newest(directory)
    assert whole.state() == since.state() == at_last != at_first
    after = [tuple(row) for row in since.rows() if row.checkpoint_id > first.checkpoint_id]
    assert sorted(after) == sorted(map(tuple, later.rows())) == sorted(map(tuple, exact.rows()))
    assert len({(row.partition, row.key, row.checkpoint_id) for row in whole.rows()}) == len(whole.rows())
    known: Counts = {}
    for row in whole.rows():
        assert row.value > known.get((row.partition, row.key), 0)
        known[row.partition, row.key] = row.value


def test_a_changelog_that_is_trimmed_under_a_query_is_said(spark: "SparkSession", tmp_path: Path) -> None:
    """The error names the first checkpoint there is and the way on; that way goes."""
    directory = tmp_path / "job"
    run(directory, 2)
    query = Query(spark, directory, tmp_path / "out")
    query.run()
    run(directory, 3)
    log = JobDirectory(directory).open_log(create=False)
    cut = positions(log)[-1]
    for number, place in cut.places.items():
        log.trim(wirings_of(job, job.stages[1])[number].changelog, place.offset)
    log.close()
    words = (
        rf"are no longer retained .*changelog_retention_ms.*the first checkpoint that changes can be read from is "
        rf"{cut.checkpoint_id}: begin again with another checkpointLocation and startingCheckpoint = snapshot"
    )
    with pytest.raises(Exception, match=words):
        query.run()
    again = Query(spark, directory, tmp_path / "again", startingCheckpoint="earliest")
    again.run()
    with pytest.raises(Exception, match="startingCheckpoint = 'first': it is snapshot, earliest, latest, or"):
        Query(spark, directory, tmp_path / "wrong", startingCheckpoint="first").run()
    with pytest.raises(Exception, match="maxCheckpointsPerBatch = '0': it is a number from 1 on"):
        Query(spark, directory, tmp_path / "wrong", maxCheckpointsPerBatch="0").run()


def test_a_query_whose_driver_is_killed_has_each_change_once(spark: "SparkSession", tmp_path: Path) -> None:
    """In the middle of batches, by SIGKILL, Java and Python: the next driver goes on where it was."""
    directory, out = tmp_path / "job", tmp_path / "out"
    run(directory, 12, frozenset({4}))
    query = Query(spark, directory, out, startingCheckpoint="earliest", maxCheckpointsPerBatch="1")
    command = [sys.executable, "-m", "tests.spark.format.killed_driver", str(directory), str(out)]
    driver = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + LIMIT_S
    while query.batches() < 2:
        assert time.monotonic() < deadline, "no batch is committed"
        assert driver.poll() is None, "the driver has ended"
        time.sleep(0.01)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    killed_at = query.batches()
    query.run()
    _, at_last = newest(directory)
    assert query.state() == at_last
    assert len({(row.partition, row.key, row.checkpoint_id) for row in query.rows()}) == len(query.rows())
    assert 2 <= killed_at < query.batches()


def test_a_query_goes_over_a_rescale(tmp_path: Path) -> None:
    """With the code before, it says what to do; with the new code it goes on, and the rescale itself is no change."""
    text, directory = Path("tests/state/pair_job.py").read_text(), tmp_path / "job"
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text(text.replace("partitions=2", "partitions=1"))
    two.write_text(text)
    run(directory, 2, reference=str(one))
    first = Reader(one, directory)
    begun = first.follow(first.reader.initialOffset())
    log = JobDirectory(directory).open_log()
    rescale(log, load_job(str(one)), 2, SETTINGS, embedded=True, assume_keyed=True)
    log.close()
    with pytest.raises(
        ConfigError, match="has 1 partitions in its code, and 2 in its changelog: if the job was rescaled"
    ):
        first.follow(begun)
    run(directory, 2, reference=str(two))
    second = Reader(two, directory)
    second.follow(begun)
    assert second.rows
    assert len(first.rows) + len(second.rows) == len(
        {(row["key"], row["checkpoint_id"]) for row in first.rows + second.rows}
    )
    for row in second.rows:
        assert row["value"] > first.state().get(row["key"], 0)
    _, at_last = newest(directory)
    assert first.state() | second.state() == {key: value for (_, key), value in at_last.items()}
    again = Reader(two, directory)
    again.follow(again.reader.initialOffset())
    assert again.rows == first.rows + second.rows


@pytest.mark.kafka
def test_changes_are_read_from_a_broker(kafka_broker: Broker, tmp_path: Path) -> None:
    """The changelogs are topics there: the same changes, each once, while a worker is killed."""
    address, code = LogAddress(f"kafka://{kafka_broker.bootstrap}"), tmp_path / "pair.py"
    suffix = f"-{random.randrange(1 << 40):x}"
    text = Path("tests/state/pair_job.py").read_text()
    code.write_text(text.replace('Topic("observed"', f'Topic("observed{suffix}"').replace('"pair"', f'"pair{suffix}"'))
    run(tmp_path / "job", 3, frozenset({1}), str(code), address)
    reader = Reader(code, tmp_path / "job", log=address.url)
    begun = reader.follow(reader.reader.initialOffset())
    run(tmp_path / "job", 1, reference=str(code), address=address)
    reader.follow(begun)
    options = {name: value for name, value in reader.options.items() if name != "startingCheckpoint"}
    table = ChangelogSource(options).reader(None)
    batches = [batch for part in table.partitions() for batch in table.read(part)]
    assert reader.state() == {row["key"]: row["value"] for batch in batches for row in batch.to_pylist()}
    assert len({(row["key"], row["checkpoint_id"]) for row in reader.rows}) == len(reader.rows)
