"""Stores with ttl_ms in Spark: backfill and audit give what a live run gives, or refuse; reads show what is alive."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.batch.check import left_out
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.backfill.audit import audit
from grete.spark.backfill.backfill import BackfillSpec, backfill
from grete.spark.backfill.ranges import BackfillEnd
from grete.spark.format.options import LogSpec
from grete.state.pins.prepare import prepare
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob
from tests.spark.backfill.scene import Silent
from tests.support import forgetful
from tests.support.draining import drain
from tests.support.forgetful import NAME, PARTITIONS, TTL_MS, Forget, expected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = Settings(checkpoint_interval_ms=100, event_time_idle_ms=600)
REFERENCE = "tests.support.forgetful"


def records(count: int, begin: int) -> list[list[tuple[int, int]]]:
    """Return (number, timestamp) of each partition: four times TTL_MS, the second one far behind the first."""
    draw = random.Random(begin)
    step = 4 * TTL_MS // count
    return [
        [(draw.randrange(300), (begin + place) * step + draw.randrange(9 * step) + part) for place in range(count)]
        for part in (10 * TTL_MS, 0)
    ]


@pytest.mark.spark
@pytest.mark.timeout(1_800)
def test_history_in_batch_and_the_rest_live_is_as_all_of_it_live(spark: "SparkSession", tmp_path: Path) -> None:
    """Backfill, then live, then an audit of both, and a read of the state: as one plain pass over all records."""
    directory = JobDirectory(tmp_path / "live")
    log = directory.open_log()
    metadata = prepare(forgetful.job, log, directory, SETTINGS, fed=[f"{NAME}-numbers"])
    where = LogSpec("embedded", "", str(directory.directory / "log.db"))
    wanted = BackfillSpec(
        forgetful.job, REFERENCE, where, SETTINGS, {f"{NAME}-numbers": "kafka"}, str(tmp_path / "spark")
    )

    def feed(parts: list[list[tuple[int, int]]]) -> None:
        for number, part in enumerate(parts):
            place = TopicPartition(f"{NAME}-numbers", number)
            fed = [ExternalRecord(place, b"k", value.to_bytes(8, signed=True), at) for value, at in part]
            metadata.produce_with_meta(fed, {})

    history, rest = records(400, 0), records(400, 400)
    feed(history)
    backfill(spark, wanted._replace(outputs=True), BackfillEnd(now=True, offsets={}), log, Silent())
    feed(rest)
    with LocalJob(forgetful.job, REFERENCE, directory, SETTINGS) as local:
        drain(local)
        local.stop()
    audited = audit(spark, wanted, log, Silent(), aligned=True)
    assert (audited.wrong, audited.differences) == (0, [])
    places = [TopicPartition(f"{NAME}-firsts", number) for number in range(PARTITIONS)]
    sent = [int.from_bytes(row.value or b"", signed=True) for place in places for row in log.read(place, 0, 1 << 24)]
    log.close()
    plain = [expected(before + after) for before, after in zip(history, rest, strict=True)]
    assert sorted(sent) == sorted(number for each, _ in plain for number in each)
    with LocalReader(directory.state_directory, forgetful.job) as reader:
        assert [dict(reader.all(Forget.seen, number)) for number in range(PARTITIONS)] == [seen for _, seen in plain]
    options = {"job": REFERENCE, "directory": str(directory.directory), "store": "seen"}
    rows = spark.read.format("changelog").options(**options).load().collect()
    assert {(row.partition, row.key, row.value) for row in rows} == {
        (number, *row) for number, (_, seen) in enumerate(plain) for row in seen.items()
    }
    assert max(len(seen) for _, seen in plain) < 300  # some of the 300 numbers have expired
    frame = spark.createDataFrame([(1, 2, 0)], "key bigint, value bigint, partition int")
    with pytest.raises(Exception, match=r"store forget/seen has ttl_ms = 60000: .* with grete backfill"):
        frame.write.format("changelog").options(**options).mode("append").save()


def test_what_an_audit_cannot_recompute_is_refused() -> None:
    """A batch's time depends on where it begins and ends, which only deterministic tasks record, for a while."""
    for job, is_recorded in [(forgetful.batches, True), (forgetful.deterministic_batches, False)]:
        with pytest.raises(ConfigError, match=r"stage forget has process_batch and a store with ttl_ms: its entries"):
            left_out(job, is_recorded=is_recorded)
    assert left_out(forgetful.deterministic_batches, is_recorded=True) == {}
