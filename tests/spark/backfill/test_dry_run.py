"""`grete backfill --dry-run`: what a backfill would take, and nothing is written."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.errors import ConfigError
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import settled_fold
from grete.worker.supervisor.local_job import LocalJob
from tests.cli.test_state_commands import grete
from tests.spark.backfill.scene import SETTINGS, SUMS, Scene, made, parquet, plain
from tests.support.draining import drain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark


def told(text: str) -> list[str]:
    """Return the counts, and the rows of the tables, that a backfill has told of its history."""
    return [line.partition(" keys in ")[0] for line in text.splitlines() if " keys in " in line or "│" in line]


def test_a_new_job_has_no_directory_behind_it(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backfill that follows says the same; a history that it would refuse is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.py").write_text(SUMS.read_text())
    parquet(tmp_path / "history" / "0.parquet", made(300, 1))
    command = ("backfill", "sums.py", "--from=history")
    assert "--max-refused" in grete(*command, "--dry-run", fails=ConfigError)
    said = grete(*command, "--max-refused=10000", "--dry-run")
    assert said.splitlines()[-1].endswith("the state of now: the job has no state")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["history", "sums.py"]
    assert told(grete(*command, "--max-refused=10000")) == told(said) != []
    assert spark.version


def test_a_running_job_does_not_notice(spark: "SparkSession", tmp_path: Path) -> None:
    """No task is claimed: the workers commit what comes, and the state that would be replaced is named."""
    scene = Scene(tmp_path)
    history, live = made(200, 1), made(100, 2)
    parquet(tmp_path / "history" / "0.parquet", history)
    done = scene.backfill(spark, str(tmp_path / "history"))
    scene.feed(live[:50])
    with LocalJob(scene.job, scene.reference, scene.job_directory, SETTINGS) as local:
        drain(local)
        generations = [settled_fold(scene.log, wiring).top for wiring in all_wirings(scene.job)]
        command = ("backfill", scene.reference, f"--directory={scene.job_directory.directory}", "--max-refused=10000")
        said = grete(*command, f"--from={tmp_path / 'history'}", "--accept=overlap", "--dry-run")
        scene.feed(live[50:])
        drain(local)
        local.stop()
    assert [settled_fold(scene.log, wiring).top for wiring in all_wirings(scene.job)] == generations
    assert scene.state() == plain(history, live)
    assert int(said.split()[-1]) > done.checkpoint_id
    scene.log.close()
