"""A query goes through all that can happen to a job: kills, what is rolled back, a rescale, trimming; on both logs."""

import random
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from grete.api.jobs.job import Job
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY, LogAddress
from grete.ports import JobLog
from grete.spark.format.changes import wirings_of
from grete.state.read.checkpoints.snapshots import snapshots_at
from grete.state.write.bulk.bulk_write import abort, begin
from grete.state.write.bulk.bulk_write_attempt import Attempt
from grete.state.write.rescale import rescale
from tests.spark.format.history import SETTINGS, STORE, counts_at, positions, run
from tests.spark.format.queries import Query, code, made_of
from tests.worker.workers import LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = TypeVar("Found")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark


def roll_back(log: JobLog, job: Job) -> None:
    """Leave a bulk write of one entry that was given up."""
    bulk_write = begin(log, job, SETTINGS)
    attempt = Attempt(log, bulk_write, job.tasks_of(1).start, 1, ())
    attempt.add([STORE], [b"word-1"], [bytes(8)])
    attempt.close()
    abort(log, bulk_write)


def check(log: JobLog, job: Job, rows: list[Any]) -> int:
    """Compare what the changes make with the state at each checkpoint that can be read; return how many these are."""
    assert len({(row.key, row.checkpoint_id) for row in rows}) == len(rows)
    every = positions(log, job)[1:]
    for position in every:
        found = {key: value for (_, key), value in made_of(rows, position.checkpoint_id).items()}
        assert found == {key: value for (_, key), value in counts_at(log, position, job).items()}
    return len(every)


class Scene:
    """A job of one partition, later of two, on one of the logs, and a query that follows its changes."""

    def __init__(self, spark: "SparkSession", directory: Path, broker: str | None) -> None:
        self.directory, self.address, self.broker = directory / "job", IN_DIRECTORY, broker
        self.suffix, self.where = "", dict[str, str]()
        if broker is not None:
            self.address = LogAddress(f"kafka://{broker}")
            self.suffix, self.where = f"-{random.randrange(1 << 40):x}", {"log": self.address.url}
        self.one = code(directory / "one.py", self.suffix, partitions="1")
        self.two = code(directory / "two.py", self.suffix)
        more = {"startingCheckpoint": "earliest", "maxCheckpointsPerBatch": "4"} | self.where
        self.query = Query(spark, self.directory, directory / "out", job=str(self.one), **more)

    def work(self, reference: Path, bursts: int, *killed_at: int) -> None:
        """Feed and run the job; workers are killed."""
        run(self.directory, bursts, frozenset(killed_at), str(reference), self.address)

    def opened(self, work: Callable[[JobLog], Found]) -> Found:
        """Do something with the log."""
        with closing(JobDirectory(self.directory, address=self.address).open_log()) as log:
            return work(log)

    def follow(self) -> list[Any]:
        """Follow into files and into a function, which hold the same; return all changes."""
        self.query.run()
        self.query.call()
        called = [row for number in sorted(self.query.function) for row in self.query.function[number]]
        rows = self.query.rows()
        assert sorted(map(tuple, called)) == sorted(map(tuple, rows))
        return rows

    def rescale(self, log: JobLog) -> None:
        """Give the job its second partition."""
        log.create_topic(f"observed{self.suffix}", 2, plain=True, grow=True)
        rescale(log, load_job(str(self.one)), 2, SETTINGS, own_topics=self.broker is None, assume_keyed=True)

    def trim(self, log: JobLog) -> None:
        """Trim the changelogs to what a restore of the newest checkpoint needs."""
        job = load_job(str(self.two))
        offsets = {number: place.offset for number, place in positions(log, job)[-1].places.items()}
        for number, snapshot in snapshots_at(log, job, job.stages[1], offsets):
            changelog = wirings_of(job, job.stages[1])[number].changelog
            log.trim(changelog, snapshot.commit.base)
            end_s = time.monotonic() + LIMIT_S
            while log.bounds(changelog)[0] < snapshot.commit.base:  # a broker does it in the background
                assert time.monotonic() < end_s, "the changelog is not trimmed"
                log.wait(20)


@pytest.mark.parametrize("log", ["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.prove])])
def test_a_query_goes_through_kills_a_rollback_a_rescale_and_trimming(
    spark: "SparkSession", log: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Into files and into a function: each change once, at each checkpoint the state, and an error where changes go."""
    broker = request.getfixturevalue("kafka_broker").bootstrap if log == "kafka" else None
    scene = Scene(spark, tmp_path, broker)
    before, after = load_job(str(scene.one)), load_job(str(scene.two))
    scene.work(scene.one, 2, 1)
    scene.follow()
    scene.opened(lambda log: roll_back(log, before))
    scene.work(scene.one, 1, 0)
    rows = scene.follow()
    assert scene.opened(lambda log: check(log, before, rows)) >= 3
    scene.opened(scene.rescale)
    with pytest.raises(
        Exception, match="has 1 partitions in its code, and 2 in its changelog: if the job was rescaled"
    ):
        scene.query.run()
    scene.query.options["job"] = str(scene.two)
    scene.work(scene.two, 2, 1)
    rows = scene.follow()
    assert scene.opened(lambda log: check(log, after, rows)) >= 2
    here = {"job": str(scene.two)} | scene.where
    scene.work(scene.two, 6)
    scene.opened(scene.trim)
    with pytest.raises(Exception, match=r"no longer retained .* begin again with another checkpointLocation and"):
        scene.query.run()
    again = Query(spark, scene.directory, tmp_path / "again", **here)
    again.run()
    table = spark.read.format("changelog").options(directory=str(scene.directory), store="counts", **here).load()
    assert again.state() == {(row.partition, row.key): row.value for row in table.collect()}
