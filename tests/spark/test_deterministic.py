"""A deterministic job begins with its history, and is audited (decision 0020)."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from grete.errors import ConfigError
from grete.protocol.ids import TopicPartition
from grete.spark.format.writer import partitioned
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.read.checkpoints.snapshots import settled_fold
from grete.worker.supervisor.local_job import LocalJob
from tests.cli.test_state_commands import grete
from tests.spark.backfill.scene import SETTINGS, Scene, made, parquet, plain
from tests.support.draining import drain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

MODE = ("partitions=2", 'partitions=2, mode="deterministic"')


def test_a_deterministic_job_goes_live_from_its_history(spark: "SparkSession", tmp_path: Path) -> None:
    """Live records are later than all that the run covers; a killed worker makes the same again; an audit agrees."""
    scene = Scene(tmp_path, changes=[MODE])
    history, live, more = made(400, 21), made(200, 22), made(100, 23)
    path = parquet(tmp_path / "history" / "0.parquet", history)
    scene.backfill(spark, path)
    done = scene.backfill(spark, path, outputs=True)  # no process has gone on from the first one
    with pytest.raises(ConfigError, match=r"a backfill has sent the outputs of its history \(parse-0\)"):
        scene.backfill(spark, path)
    scene.feed(live)
    with LocalJob(scene.job, scene.reference, scene.job_directory, SETTINGS) as local:
        drain(local)
        local.supervisor.kill(0)
        scene.feed(more)
        drain(local)
        local.stop()
    assert scene.state() == plain(history, live, more)
    assert scene.sent("told") == sum(text != "x" for _, text, _ in [*history, *live, *more])
    for wiring in all_wirings(scene.job):
        last = last_commit(scene.log, wiring.changelog)
        assert last is not None
        assert last.commit.deterministic is not None
        times = [frontier.t for frontier in last.commit.deterministic.frontiers] or [last.commit.deterministic.last_t]
        assert min(times) > done.checkpoint_id * 1_000
    audited = scene.audit(spark, path)
    assert (audited.wrong, audited.differences) == (0, [])
    with pytest.raises(ConfigError, match=r"deterministic and has run .*: give the job another name"):
        scene.backfill(spark, path)
    scene.log.close()


def write(spark: "SparkSession", scene: Scene, mode: str, value: int, keys: str, **more: str) -> None:
    """Write these keys, with one value, into the sums of the second stage."""
    where = {"job": scene.reference, "directory": str(scene.job_directory.directory), "store": "sum/sums"} | more
    frame = partitioned(spark.createDataFrame([(key, value) for key in keys], "key string, value bigint"), **where)
    frame.write.format("changelog").mode(mode).options(**where).save()


def test_spark_writes_into_a_deterministic_job_before_it_has_run(spark: "SparkSession", tmp_path: Path) -> None:
    """A table, then another one added to it, go live: read, added to, made again by a killed worker, verified.

    What the offsets cover is not read. Once the job has run it is refused, and a worker at work notices nothing.
    """
    scene = Scene(tmp_path, changes=[MODE])
    covered, live, more = made(50, 25), made(200, 26), made(100, 27)
    scene.feed(covered)
    ends = {number: scene.log.bounds(TopicPartition("events", number))[1] for number in range(2)}
    write(spark, scene, "overwrite", 1_000, "0123456789")
    write(spark, scene, "append", 2_000, "579", offsets=json.dumps({"events": ends}))
    scene.feed(live)
    with LocalJob(scene.job, scene.reference, scene.job_directory, SETTINGS) as local:
        drain(local)
        local.supervisor.kill(1)
        scene.feed(more)
        drain(local)
        tops = [settled_fold(scene.log, wiring).top for wiring in all_wirings(scene.job)]
        with pytest.raises(Exception, match=r"job 'sums' is deterministic and has run \(parse-0\).*another name"):
            write(spark, scene, "append", 1, "0")
        assert [settled_fold(scene.log, wiring).top for wiring in all_wirings(scene.job)] == tops
        local.stop()
    seen, sums = plain(live, more)
    written = dict.fromkeys("0123456789", 1_000) | dict.fromkeys("579", 2_000)
    assert scene.state() == (seen, {key: value + sums.get(key, 0) for key, value in written.items()})
    assert scene.sent("told") == sum(text != "x" for _, text, _ in [*live, *more])
    verified = grete("check-determinism", scene.reference, f"--directory={scene.job_directory.directory}")
    assert "all of them are the same" in verified, verified
    with pytest.raises(Exception, match=r"job 'sums' is deterministic and has run"):
        write(spark, scene, "overwrite", 1, "0")
    scene.log.close()


def test_an_audit_without_the_decisions_goes_by_the_order_of_time(spark: "SparkSession", tmp_path: Path) -> None:
    """The changelogs were rewritten, and what was decided before is trimmed: the audit says so, and compares stores.

    A task that asks for the time of a record cannot be recomputed any more.
    """
    scene = Scene(tmp_path, changes=[MODE])
    history = made(60, 31)
    fed = list(history)
    scene.feed(history)
    brief = replace(SETTINGS, changelog_retention_ms=1)
    changelogs = [wiring.changelog for wiring in all_wirings(scene.job)]
    with LocalJob(scene.job, scene.reference, scene.job_directory, brief) as local:
        drain(local)
        while not all(scene.log.bounds(changelog)[0] for changelog in changelogs):
            scene.feed(more := made(10, len(fed)))
            fed += more
            drain(local)
        local.stop()
    audited = scene.audit(spark, "kafka")
    assert (audited.wrong, audited.differences) == (0, [])
    assert any("do not hold all input decisions any more" in each for each in scene.told.said)
    assert scene.state() == plain(fed)
    path = parquet(tmp_path / "history" / "0.parquet", history)
    assert scene.audit(spark, path).wrong > 0  # these records come twice, then
    code = Path(scene.reference).read_text()
    scene.reference = str(tmp_path / "other.py")  # executors keep the code of a file that they have read
    Path(scene.reference).write_text(code.replace("        self.seen", "        self.ctx.now()\n        self.seen"))
    with pytest.raises(ConfigError, match=r"ctx.now, ctx.random and ctx.uuid cannot be recomputed"):
        scene.audit(spark, "kafka")
    scene.log.close()
