"""``readStream.format("changelog")`` of real workers: started again and again, and with a driver that is killed."""

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
from grete.spark.format.changes import ChangePoint, wirings_of
from grete.state.write.rescale import rescale
from grete.testing.broker import Broker
from tests.spark.format.history import REFERENCE, SETTINGS, Counts, counts_at, positions, run
from tests.spark.format.queries import Query, Reader
from tests.state.pair_job import job
from tests.worker.workers import LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1_800)  # the first to come starts Spark


def newest(directory: Path) -> tuple[ChangePoint, Counts]:
    """Return the newest position of the job, and the counts there."""
    log = JobDirectory(directory).open_log(create=False)
    found = positions(log)[-1]
    counts = counts_at(log, found)
    log.close()
    return found, counts


def made(reader: Reader) -> Counts:
    """Return the table that the changes make, one after another."""
    return {(row["partition"], row["key"]): row["value"] for row in reader.rows}


def test_a_query_goes_on_exactly_while_workers_are_killed(tmp_path: Path) -> None:
    """Started again after each run of the job, it has each change once: so does the table then changes."""
    directory = tmp_path / "job"
    run(directory, 4, frozenset({2}))
    whole = Reader(REFERENCE, directory, startingCheckpoint="earliest", maxCheckpointsPerBatch="3")
    since, later = (Reader(REFERENCE, directory, startingCheckpoint=start) for start in ("snapshot", "latest"))
    for reader in (whole, since, later):
        reader.run()
    first, at_first = newest(directory)
    assert made(whole) == made(since) == at_first
    assert (whole.batches >= 2, since.batches, later.batches) == (True, 1, 0)
    assert len(since.rows) == len(at_first)
    run(directory, 3, frozenset({1}))
    exact = Reader(REFERENCE, directory, startingCheckpoint=str(first.checkpoint_id))
    for reader in (whole, since, later, exact):
        reader.run()
    _, at_last = newest(directory)
    assert made(whole) == made(since) == at_last != at_first
    after = [row for row in since.rows if row["checkpoint_id"] > first.checkpoint_id]
    assert after == later.rows == exact.rows
    assert len({(row["partition"], row["key"], row["checkpoint_id"]) for row in whole.rows}) == len(whole.rows)
    known: Counts = {}
    for row in whole.rows:
        assert row["value"] > known.get((row["partition"], row["key"]), 0)
        known[row["partition"], row["key"]] = row["value"]


def test_a_changelog_that_is_trimmed_under_a_query_is_said(tmp_path: Path) -> None:
    """The error names the first checkpoint there is and the way on; that way goes."""
    directory = tmp_path / "job"
    run(directory, 2)
    reader = Reader(REFERENCE, directory)
    reader.run()
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
    with pytest.raises(ConfigError, match=words):
        reader.run()
    Reader(REFERENCE, directory).run()
    with pytest.raises(ConfigError, match="startingCheckpoint = 'first': it is snapshot, earliest, latest, or"):
        Reader(REFERENCE, directory, startingCheckpoint="first")
    with pytest.raises(ConfigError, match="maxCheckpointsPerBatch = '0': it is a number from 1 on"):
        Reader(REFERENCE, directory, maxCheckpointsPerBatch="0")


@pytest.mark.spark
def test_a_query_whose_driver_is_killed_has_each_change_once(spark: "SparkSession", tmp_path: Path) -> None:
    """In the middle of batches, by SIGKILL, Java and Python: the next driver goes on where it was."""
    directory, out = tmp_path / "job", tmp_path / "out"
    run(directory, 6, frozenset({4}))
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
    rescale(log, load_job(str(one)), 2, SETTINGS, own_topics=True, assume_keyed=True)
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
    assert reader.state() == {row["key"]: row["value"] for row in reader.table()}
    assert len({(row["key"], row["checkpoint_id"]) for row in reader.rows}) == len(reader.rows)
