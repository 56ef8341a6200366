"""Worker processes: what their entry imports, and the spare that makes a restart quick."""

import subprocess
import sys
from pathlib import Path

import pytest

from framework.job.directory import Place
from framework.settings import Settings
from framework.worker.local_job import LocalRun
from framework.worker.process_main import Orders
from framework.worker.process_pool import Spawner
from tasks.word_count import job
from tests.worker.test_supervisor import poll_until, running
from tests.worker.workers import LIMIT_S, say, totals


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    """Return orders for a worker of a job that does not exist: it ends with exit code 4 and says so in its log."""
    return Orders(
        job="tasks.missing",
        partition=0,
        directory=str(tmp_path / "job"),
        log="embedded",
        kafka_config=None,
        settings={},
        output=str(tmp_path / "worker.log"),
    )


def test_a_worker_imports_nothing_that_only_people_need() -> None:
    """Imports are most of a start: a user interface, or Spark, would double it."""
    code = "import sys, framework.worker.process_main, framework.logs.kafka; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert "framework.worker.worker" in imported
    assert not {"typer", "rich", "pyspark", "framework.cli"} & set(imported)


def test_the_spare_takes_the_place_of_a_killed_worker(tmp_path: Path) -> None:
    """The process that waited is the one that goes on, as a new generation; then another one waits."""
    with LocalRun(job, "tasks.word_count", Place(tmp_path / "job"), Settings()) as local:
        worker, spawner = local.supervisor.workers[0], local.supervisor._spawner
        poll_until(local, lambda: running(local) and spawner._spare is not None)
        assert spawner._spare is not None
        spare = spawner._spare.started.process
        local.supervisor.kill(0)
        say(local.notes, "a b")
        ends = local.ends()
        poll_until(local, lambda: local.drained(ends))
        assert worker.process is spare
        assert worker.status["count-words-0"]["generation"] == 2
        assert totals(local.log) == [("a", 1), ("b", 1)]
        poll_until(local, lambda: spawner._spare is not None)
        waiting = spawner._spare.started.process
    assert waiting is not spare
    assert waiting.returncode is not None  # the spare ends with its supervisor


def test_a_spare_whose_supervisor_is_gone_ends() -> None:
    """However the supervisor ended, the kernel closes its end of the pipe."""
    command = [sys.executable, "-m", "framework.worker.process_main"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=LIMIT_S, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("spare", ["none", "waits", "dead"])
def test_a_worker_starts_with_or_without_a_spare(spare: str, orders: Orders) -> None:
    """A spare saves time and nothing else: output, exit code and status pipe are the same."""
    spawner = Spawner()
    if spare != "none":
        spawner.warm()
    if spare == "dead":
        assert spawner._spare is not None
        spawner._spare.started.process.kill()
        spawner._spare.started.process.wait()
    started = spawner.start(orders)
    assert started.process.wait(LIMIT_S) == 4
    assert "no module 'tasks.missing'" in Path(orders.output).read_text()
    spawner.close()
