"""Scenes on a Spark cluster in which an attempt is slow, then executors are killed: a script, as they need a session.

cluster_scenes.py DIRECTORY: the logs of the jobs below it are there.
"""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from framework.logs.embedded import EmbeddedLog
from framework.spark.session import local_session
from framework.spark.writing import partitioned
from protocol.changelog import ChangelogType, decode_changelog_header
from protocol.ids import TopicPartition
from tests.spark.cluster import SparkCluster
from tests.spark.cluster_backfills import play
from tests.spark.troubles import LIMIT_S, kill_executor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFERENCE, STORE = "tests.runtime.pair_job", "count/counts"
COUNTED = TopicPartition("pair.count.changelog", 1)
WORDS = [f"w{number}" + "." * 2_000 for number in range(400)]  # a partition has twice what pipes and queues hold
MIDDLE = 150  # so many of its rows have been read when a part of them is in the log

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.efficiency.enabled": "false",  # judge by time alone
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",  # a data message for each row
    "spark.sql.shuffle.partitions": "2",
}

Rows = Iterator[pa.RecordBatch]


def attempts_at(log: EmbeddedLog, changelog: TopicPartition) -> set[int]:
    """Return which attempts have data in a changelog."""
    begin, end = log.bounds(changelog)
    headers = [decode_changelog_header(row[4] or b"") for row in (log.read(changelog, begin, 1 << 24) if end else ())]
    return {header.attempt for header in headers if header.type is ChangelogType.DATA}


def wait_for_data(directory: Path, enough: Callable[[set[int]], object]) -> None:
    """Return once the attempts that have data in the log are enough."""
    log = EmbeddedLog(directory / "log.db")
    end_s = time.monotonic() + LIMIT_S
    while not enough(attempts_at(log, COUNTED)):
        assert time.monotonic() < end_s, "this attempt waits for data that do not come"
        log.wait(20)
    log.close()


def stands_still(_: Path, own: int, found: set[int]) -> bool:
    """Wait in the middle until another attempt has written, too."""
    return bool(found - {own})


def dies(directory: Path, own: int, found: set[int]) -> bool:
    """Wait until this attempt has written, and kill its executor, once."""
    if own in found:
        kill_executor(directory / "killed")
    return own in found


Trouble = Callable[[Path, int, set[int]], bool]


def troubled(trouble: Trouble, directory: Path, batches: Rows) -> Rows:
    """Pass rows on to the writer; in the middle of partition 1 there is trouble."""
    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if number == MIDDLE and context.partitionId() == 1:
            wait_for_data(directory, partial(trouble, directory, context.taskAttemptId() + 1))
        yield batch


def write(spark: "SparkSession", trouble: Trouble, directory: Path) -> None:
    """Give the pair job counts."""
    options = {"job": REFERENCE, "directory": str(directory), "store": STORE}
    frame = partitioned(spark.createDataFrame([(word, 3) for word in WORDS], "key string, value bigint"), **options)
    frame = frame.mapInArrow(partial(troubled, trouble, directory), frame.schema)
    frame.write.format("changelog").mode("overwrite").options(**options).save()


def main(directory: Path) -> None:
    """Play all scenes in one session."""
    with SparkCluster(directory) as cluster:
        spark = local_session(cluster.url, SETTINGS)
        write(spark, stands_still, directory / "slow")
        write(spark, dies, directory / "killed")
        play(spark, directory)
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
