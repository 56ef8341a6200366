"""State on the move by Spark beside live workers, and a driver that is killed: all of it counts, or nothing."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grete.cli.main import app
from grete.errors import ConfigError, Fenced
from grete.spark.moving.spark_mover import SparkMover
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.write.bulk.bulk_write_attempt import AttemptData, BulkWrite
from grete.state.write.moving.routes import Route
from grete.worker.supervisor.local_job import LocalJob
from tests.spark.backfill.scene import Silent
from tests.spark.moving.scene import CLUSTER, Moving, made
from tests.worker.workers import LIMIT_S

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

FIRST, SECOND, THIRD = made(200, 1, 0), made(100, 2, 1_500), made(100, 3, 100_000)


def until_committed(moving: Moving, local: LocalJob) -> None:
    """Let workers run until each task has committed once more."""
    wirings = all_wirings(moving.job)
    before = [last_commit(moving.log, wiring.changelog) for wiring in wirings]
    end_s = time.monotonic() + LIMIT_S
    while any(last_commit(moving.log, w.changelog) == was for w, was in zip(wirings, before, strict=True)):
        assert time.monotonic() < end_s, "the workers do not commit"
        local.poll(20)


class Raced(SparkMover):
    """A move in which a live worker appears after all is written, and before the commit."""

    job: Moving

    def write(self, routes: Sequence[Route], bulk_write: BulkWrite) -> tuple[list[AttemptData], Counter[str]]:
        """Write, and let workers take the tasks over."""
        done = super().write(routes, bulk_write)
        with self.job.started() as local:
            until_committed(self.job, local)
            local.stop()
        return done


@pytest.mark.usefixtures("spark")
def test_a_live_worker_is_named_and_one_that_starts_meanwhile_wins(tmp_path: Path) -> None:
    """Nothing is changed beside a worker; against one that comes later the write does not count, and the job goes on.

    Asked again, when all workers are stopped, it does; what was given up is not there.
    """
    job = Moving(tmp_path / "job", "moving", 2).run(FIRST)
    plain = job.copy(tmp_path / "plain")
    with job.started() as local:
        until_committed(job, local)
        with pytest.raises(ConfigError, match=r"keep-0 has a worker: process \d+ on .* is alive: stop the job's"):
            job.rescale(3, job.mover())
        local.stop()
    with Raced(CLUSTER, job.where, job.where, None, Silent()) as raced:
        raced.job = job
        with pytest.raises(Fenced, match="does not count: stop the job's workers, and run it again"):
            job.rescale(3, raced)
    job.run(SECOND)
    with job.mover() as mover:
        job.rescale(3, mover)
    job = job.of(3).run(THIRD)
    plain.run(SECOND)
    plain.run(THIRD)
    assert job.sent() == plain.sent()
    job.log.close()
    plain.log.close()


@pytest.mark.usefixtures("spark")
def test_a_rescale_whose_driver_is_killed_is_run_again(tmp_path: Path) -> None:
    """While executors write, the job starts as it was; before the outcome, it is asked again. By the command."""
    job = Moving(tmp_path / "job", "moving", 2).run(FIRST)
    plain = job.copy(tmp_path / "plain")
    kill(job, "writing")
    job.run(SECOND)
    kill(job, "outcome")
    three = Moving(job.directory, job.name, 3)
    asked = ["rescale", job.reference, "--partitions=3", f"--directory={job.job_directory.directory}"]
    done = CliRunner().invoke(app, [*asked, f"--spark={CLUSTER}"])
    assert done.exit_code == 0, repr(done.exception)
    assert "count/counts\t60 entries" in done.stdout
    three.run(THIRD)
    plain.run(SECOND)
    plain.run(THIRD)
    assert three.sent() == plain.sent()
    assert three.files_taken() == 6
    for each in (job, plain, three):
        each.log.close()


def kill(job: Moving, moment: str) -> None:
    """Rescale the job in a process that is killed then."""
    command = [sys.executable, "-m", "tests.spark.moving.killed_driver", str(job.directory), job.name, moment]
    with (job.directory / "errors").open("w") as errors:
        driver = subprocess.Popen(command, stderr=errors, start_new_session=True, cwd=Path(__file__).parents[3])
        driver.wait()
    with contextlib.suppress(ProcessLookupError):  # its Java, and the executor that has been standing there
        os.killpg(driver.pid, signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL, (job.directory / "errors").read_text()
