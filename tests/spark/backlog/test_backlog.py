"""The ten jobs on a day's backlog, with workers that die: what Spark computes over the whole input at once, row by row.

A larger run, in both modes and on Kafka, too: `make bench EXPERIMENT=backlog`.
"""

import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.api.tasks.mode import Mode
from grete.logs.address import EMBEDDED
from grete.testing.broker import Broker
from tests.spark.backlog.feeds import DAY_MS, FEEDS, SHARE, backlog
from tests.spark.backlog.in_batch import in_batch
from tests.spark.backlog.running import SEEN, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

RECORDS = 2_000  # of the dense partition
START = 1_767_225_600_000
KILLS = 3  # two while it reads, one while it is drained
MODES: dict[str, Mode] = {
    name: "deterministic" if number % 2 else "aligned" for number, name in enumerate(FEEDS)
}  # of the embedded log; the larger run has both


def compare(spark: "SparkSession", name: str, mode: Mode, start: int, directory: Path, log: str) -> None:
    """Run a job over its backlog; each kind of result must be that of the batch."""
    fed = backlog(name, RECORDS, start)
    done = run(name, mode, fed, directory, log=log, kills=KILLS)
    assert (done.killed, done.late) == (KILLS, 0)
    expected = in_batch(spark, name, fed)
    assert set(done.results) == set(expected)
    for what, rows in expected.items():
        assert rows, what
        assert (rows - done.results[what], done.results[what] - rows) == ({}, {}), what


@pytest.mark.parametrize("name", FEEDS)
def test_a_job_gives_what_a_batch_gives(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    """On the embedded log."""
    compare(spark, name, MODES[name], START, tmp_path, EMBEDDED)


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("interval_join", "aligned"),
        ("top_pages", "deterministic"),
        pytest.param("once_a_day", "aligned", marks=pytest.mark.prove),
    ],
)
def test_a_job_gives_what_a_batch_gives_on_kafka(
    spark: "SparkSession", tmp_path: Path, kafka_broker: Broker, name: str, mode: Mode
) -> None:
    """The join, the windows and what is told once a day; their topics have names that no other test has."""
    start = (time.time_ns() // 1_000_000 // DAY_MS - 3) * DAY_MS  # a plain topic deletes what is older than a week
    compare(spark, name, mode, start, tmp_path, f"kafka://{kafka_broker.bootstrap}")


def test_each_feed_is_a_day_of_two_unequal_partitions() -> None:
    """Twenty times as many records in one, out of order, some of them before others of the same key."""
    assert list(FEEDS) == list(SEEN)
    for name in FEEDS:
        fed = backlog(name, RECORDS, START)
        counts = [sum(row.partition == partition for row in fed) for partition in range(2)]
        assert SHARE * 0.7 < counts[0] / counts[1] < SHARE * 1.4, name
        times = [row.at for row in fed if row.partition == 0]
        assert max(times) - min(times) > 0.9 * DAY_MS, name
        assert any(later < earlier for earlier, later in pairwise(times)), name
