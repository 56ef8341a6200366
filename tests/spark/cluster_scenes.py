"""Scenes on a Spark cluster in which an attempt is slow, then executors are killed: a script, as they need a session.

cluster_scenes.py DIRECTORY SCENES: the logs of the jobs below it are there, and so is what the scenes before have left.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from grete.logs.embedded import EmbeddedLog
from grete.protocol.changelog import ChangelogHeader, ChangelogType, decode_changelog_header
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.format.sources import ChangelogSource
from grete.spark.format.writer import StateWriter, TaskWrites, partitioned
from grete.spark.session import local_session
from tests.spark.cluster import SparkCluster
from tests.spark.cluster_backfills import JOBS, play
from tests.spark.cluster_moves import move
from tests.spark.format import history
from tests.spark.format.queries import run_query
from tests.spark.kept_classes import JAVA
from tests.spark.troubles import LIMIT_S, kill_executor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFERENCE, STORE = "tests.state.pair_job", "count/counts"
COUNTED = TopicPartition("pair.count.changelog", 1)
WORDS = [f"w{number}" + "." * 2_000 for number in range(400)]  # a partition has twice what pipes and queues hold
KEPT = Settings(checkpoint_interval_ms=50, stream_retention_ms=600_000)
MIDDLE = 150  # that many of its rows have been read when a part of them is in the log

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",  # this cluster is on one machine, which may have no network
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.efficiency.enabled": "false",  # judge by time alone
    "spark.python.task.killTimeout": "10m",  # a Python process that cannot be interrupted goes on beside its twin
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",  # a data message for each row
    "spark.sql.shuffle.partitions": "2",
    "spark.locality.wait": "0s",  # the host that has the rows may be busy for long
}

Rows = Iterator[pa.RecordBatch]


def headers_in(log: EmbeddedLog, changelog: TopicPartition) -> list[ChangelogHeader]:
    """Return the headers of all messages in a changelog."""
    begin, end = log.bounds(changelog)
    return [decode_changelog_header(row.value or b"") for row in (log.read(changelog, begin, 1 << 24) if end else ())]


def attempts_at(log: EmbeddedLog, changelog: TopicPartition) -> set[int]:
    """Return the attempts that have data in a changelog."""
    return {header.attempt for header in headers_in(log, changelog) if header.type is ChangelogType.DATA}


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


class Surviving(DataSourceArrowWriter):
    """The writer, in whose first attempt of partition 1 rows come late: the half of them behind the commit."""

    def __init__(self, writer: StateWriter, directory: Path) -> None:
        self._writer, self._directory = writer, directory

    def write(self, iterator: Rows) -> TaskWrites:
        """Write; note that the attempt that was too late has come to its end."""
        context = TaskContext.get()
        assert context is not None
        slow = self._directory / "slow-attempt"
        try:
            if context.partitionId() != 1:
                raise FileExistsError
            slow.touch(exist_ok=False)
        except FileExistsError:
            return self._writer.write(iterator)
        written = self._writer.write(_half_behind_the_commit(self._directory, list(iterator)))
        slow.write_text(str(context.taskAttemptId() + 1))
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit."""
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort."""
        self._writer.abort(messages)


def _half_behind_the_commit(directory: Path, rows: list[pa.RecordBatch]) -> Rows:
    yield from rows[:MIDDLE]
    log = EmbeddedLog(directory / "log.db")
    end_s = time.monotonic() + LIMIT_S
    while ChangelogType.COMMIT not in {header.type for header in headers_in(log, COUNTED)}:
        assert time.monotonic() < end_s, "this attempt waits for a commit that does not come"
        log.wait(20)
    log.close()
    yield from rows[MIDDLE:]


class SurvivingSource(ChangelogSource):
    """The format, with that writer."""

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "surviving"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Return the writer."""
        return Surviving(super().writer(schema, overwrite), Path(self.options["directory"]))


def write_on(spark: "SparkSession", directory: Path) -> None:
    """Give the pair job all of its state; the attempt that loses writes on behind the commit."""
    spark.dataSource.register(SurvivingSource)
    options = {"job": REFERENCE, "directory": str(directory)}
    words = spark.createDataFrame([(word, 3) for word in WORDS], "key string, value bigint")
    frame = partitioned(words, store=STORE, **options).selectExpr(
        "'count' AS stage",
        "'counts' AS store",
        "partition",
        "CAST(key AS BINARY) AS key",
        "X'0000000000000003' AS value",
    )
    frame.write.format("surviving").mode("overwrite").options(**options).save()
    end_s = time.monotonic() + LIMIT_S
    while not (directory / "slow-attempt").read_text():
        assert time.monotonic() < end_s, "the attempt that was too late does not end"
        time.sleep(0.05)


def deadly(directory: Path, checkpoint_id: int, batches: Rows) -> Rows:
    """Pass changes on; the first one that is behind a checkpoint takes its executor with it, once."""
    for batch in batches:
        if max(batch.column("checkpoint_id").to_pylist(), default=0) > checkpoint_id:
            kill_executor(directory / "killed")
        yield batch


def follow(spark: "SparkSession", directory: Path) -> None:
    """Follow the changes of a job into files, and leave what a reader of these finds."""
    options = {"job": REFERENCE, "directory": str(directory), "store": STORE}
    changes = spark.readStream.format("changelog").options(
        **options, startingCheckpoint="earliest", maxCheckpointsPerBatch="2"
    )
    frame = changes.load()
    frame = frame.mapInArrow(partial(deadly, directory, int((directory / "middle").read_text())), frame.schema)
    sink = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "offsets"))
    run_query(sink.option("path", str(directory / "changes")))
    rows = spark.read.parquet(str(directory / "changes")).orderBy("checkpoint_id").collect()
    (directory / "rows.json").write_text(json.dumps([row.asDict() for row in rows]))


def killing(directory: Path, batches: Rows) -> Rows:
    """Pass records on; the first ones take their executor with them, once."""
    for batch in batches:
        kill_executor(directory / "killed")
        yield batch


def follow_records(spark: "SparkSession", directory: Path) -> None:
    """Follow a stream and a topic of a job by a query that is started twice; leave what its files hold."""
    job = str(directory / "told.py")
    for turn in range(2):
        history.run(directory / "job", 2, frozenset({turn}), job, settings=KEPT)
        frames = [
            spark.readStream.format(form)
            .options(job=job, directory=str(directory / "job"), topic=topic, **more)
            .load()
            .selectExpr(f"'{topic}' AS of", "key", "CAST(value AS STRING) AS value", "partition", place, "producer")
            for form, topic, place, more in (
                ("stream", "words", "seq AS place", {}),
                ("topic", "observed", "offset AS place", {"maxRecordsPerBatch": "12"}),
            )
        ]
        frame = frames[0].union(frames[1])
        frame = frame.mapInArrow(partial(killing, directory), frame.schema)
        sink = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "offsets"))
        run_query(sink.option("path", str(directory / "records")))
    rows = spark.read.parquet(str(directory / "records")).collect()
    (directory / "rows.json").write_text(json.dumps([row.asDict() for row in rows]))


def main(directory: Path, names: list[str]) -> None:
    """Play these scenes in one session."""
    with SparkCluster(directory) as cluster:
        spark = local_session(cluster.url, SETTINGS)
        scenes: dict[str, Callable[[], object]] = {
            "slow": partial(write, spark, stands_still, directory / "slow"),
            "killed": partial(write, spark, dies, directory / "killed"),
            "late": partial(write_on, spark, directory / "late"),
            "moved": partial(move, cluster.url, directory / "moved", directory / "slow"),
            "followed": partial(follow, spark, directory / "followed"),
            "records": partial(follow_records, spark, directory / "records"),
            **{name: partial(play, spark, directory, name) for name in JOBS},
        }
        for name in names:
            sys.stderr.write(f"scene {name} begins at {time.monotonic():.0f} s\n")
            scenes[name]()
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
