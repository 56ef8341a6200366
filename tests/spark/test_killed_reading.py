"""A driver that is killed before it has claimed any task has changed nothing: the job starts as if it had not been."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grete.api.jobs.job import Job
from grete.ports import JobLog
from grete.state.read.checkpoints.commits import all_wirings
from tests.spark.backfill.scene import Scene, made, parquet, plain
from tests.spark.moving.scene import Moving
from tests.spark.moving.test_moving_faults import FIRST, SECOND, THIRD

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # it starts Spark


def kill(directory: Path, *arguments: str) -> None:
    """Run a driver until it kills itself; then its Java, which would end a little later."""
    command, root = [sys.executable, "-m", "tests.spark.killed_reading", *arguments], Path(__file__).parents[2]
    with (directory / "errors").open("w") as errors:
        driver = subprocess.Popen(command, stdout=errors, stderr=errors, start_new_session=True, cwd=root)
        driver.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL, (directory / "errors").read_text()


def left(directory: Path, log: JobLog, job: Job) -> tuple[set[Path], dict[str, tuple[int, int]]]:
    """Return the files of a job, the log's own apart, and the bounds of all that its tasks write."""
    files = {path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("log.db")}
    return files, {str(wiring.changelog): log.bounds(wiring.changelog) for wiring in all_wirings(job)}


def test_a_rescale_whose_driver_is_killed_while_it_reads(tmp_path: Path) -> None:
    """Its workers go on with the number of partitions that they had, and a later rescale does what was asked."""
    job = Moving(tmp_path / "job", "reading", 2).run(FIRST)
    whole = job.copy(tmp_path / "whole")
    before = left(job.job_directory.directory, job.log, job.job)
    kill(tmp_path, "rescale", str(job.directory), job.name)
    assert left(job.job_directory.directory, job.log, job.job) == before
    for each in (job, whole):
        each.run(SECOND)
    job.rescale(3)
    job = job.of(3).run(THIRD)
    whole.run(THIRD)
    assert job.sent() == whole.sent()
    job.log.close()
    whole.log.close()


def test_a_backfill_whose_driver_is_killed_before_it_claims(tmp_path: Path) -> None:
    """Its history has been looked at, and is not there: workers start from the topic alone."""
    scene = Scene(tmp_path, "-reading")
    path, live = parquet(tmp_path / "history" / "0.parquet", made(300, 41)), made(100, 42)
    place = scene.job_directory.directory
    before = left(place, scene.log, scene.job)
    kill(tmp_path, "backfill", scene.reference, f"--from={path}", f"--directory={place}", "--spark=local[1]")
    assert left(place, scene.log, scene.job) == before
    scene.feed(live)
    scene.run()
    assert scene.state() == plain(live)
    scene.log.close()
