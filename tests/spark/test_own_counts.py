"""Stages with numbers of tasks of their own: their history, their state as a table, and an audit (A6, 2.5)."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.spark.format.writer import partitioned
from tests.spark.backfill.scene import Scene, made, parquet, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

THREE = '    """Adds up."""\n', '    """Adds up."""\n\n    partitions = 3\n'


def test_a_job_with_numbers_of_its_own_goes_live_from_files(spark: "SparkSession", tmp_path: Path) -> None:
    """Two tasks, then three: backfilled, run, audited, read as a table, and written as one."""
    scene = Scene(tmp_path, "-own", changes=[THREE])
    with closing(scene.log):
        _lives(spark, scene, tmp_path)


def _lives(spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
    history, live = made(200, 31), made(100, 32)
    path = parquet(tmp_path / "history" / "0.parquet", history)
    done = scene.backfill(spark, path, outputs=True)
    assert done.cover.resume == {TopicPartition(scene.topic, number): 0 for number in range(2)}
    assert scene.prebuilt() == 5
    scene.feed(live)
    scene.run()
    seen, sums = plain(history, live)
    assert scene.state() == (seen, sums)
    assert (scene.prebuilt(), scene.taken()) == (0, 5)
    assert scene.sent("told") == sum(text != "x" for _, text, _ in [*history, *live])
    audited = scene.audit(spark, path)
    assert (audited.wrong, audited.differences) == (0, [])
    options = {"job": scene.reference, "directory": str(scene.job_directory.directory), "store": "sum/sums"}
    table = spark.read.format("changelog").options(**options).load()
    rows = table.collect()
    assert {row.key: row.value for row in rows} == sums
    assert all(row.partition == partition_of(row.key.encode(), 3) for row in rows)
    doubled = partitioned(table.selectExpr("key", "2 * value as value"), **options)
    doubled.write.format("changelog").mode("overwrite").options(**options).save()
    scene.run()
    assert scene.state() == (seen, {key: 2 * value for key, value in sums.items()})
    with pytest.raises(PySparkException, match="partition 7 is not one of 0 to 2"):
        table.selectExpr("7 as partition", "key", "value").write.format("changelog").mode("overwrite").options(
            **options
        ).save()
