"""Worker processes: what their entry imports, and the prewarmed worker that makes a restart quick."""

import subprocess
import sys
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.settings import Settings
from grete.worker.life.process_main import WorkerSpec
from grete.worker.supervisor import supervisor
from grete.worker.supervisor.local_job import LocalJob
from grete.worker.supervisor.process_pool import ProcessPool
from tasks.word_count import job
from tests.worker.test_supervisor import poll_until, running
from tests.worker.workers import LIMIT_S, say, totals


@pytest.fixture
def spec(tmp_path: Path) -> WorkerSpec:
    """Return the spec of a worker of a job that does not exist: it ends with exit code 4 and says so in its log."""
    return WorkerSpec(
        job="tasks.missing",
        number=0,
        partitions=(0,),
        directory=str(tmp_path / "job"),
        log="embedded",
        kafka_config=None,
        settings=Settings(),
        output=str(tmp_path / "worker.log"),
    )


def test_a_worker_imports_nothing_that_only_people_need() -> None:
    """Imports are most of a start: a user interface, or Spark, would double it."""
    code = "import sys, grete.worker.life.process_main, grete.logs.kafka; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert "grete.worker.process.worker" in imported
    assert not {"typer", "rich", "pyspark", "grete.cli"} & set(imported)


def test_a_run_that_ends_soon_prewarms_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the job has run for a while, no process is started but the workers."""
    monkeypatch.setattr(supervisor, "WARM_AFTER_S", 10 * LIMIT_S)
    with LocalJob(job, "tasks.word_count", JobDirectory(tmp_path / "job"), Settings()) as local:
        say(local.metadata, "a b")
        ends = local.ends()
        poll_until(local, lambda: local.drained(ends) and running(local))
        assert local.supervisor._pool._prewarmed is None


@pytest.mark.usefixtures("started_by_exec")  # likewise
def test_the_prewarmed_worker_takes_the_place_of_a_killed_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that waited is the one that goes on, as a new generation; then another one waits."""
    monkeypatch.setattr(supervisor, "WARM_AFTER_S", 0.0)
    with LocalJob(job, "tasks.word_count", JobDirectory(tmp_path / "job"), Settings()) as local:
        worker, spawner = local.supervisor.workers[0], local.supervisor._pool
        poll_until(local, lambda: running(local) and spawner._prewarmed is not None)
        assert spawner._prewarmed is not None
        prewarmed = spawner._prewarmed.process
        local.supervisor.kill(0)
        say(local.metadata, "a b")
        ends = local.ends()
        poll_until(local, lambda: local.drained(ends))
        assert local.supervisor.process(0) is prewarmed
        assert worker.reports.tasks["count-words-0"].generation == 2
        assert totals(local.log) == [("a", 1), ("b", 1)]
        poll_until(local, lambda: spawner._prewarmed is not None)
        waiting = spawner._prewarmed.process
    assert waiting is not prewarmed
    assert waiting.returncode is not None  # the prewarmed worker ends with its supervisor


@pytest.mark.usefixtures("started_by_exec")  # likewise
def test_a_prewarmed_worker_whose_supervisor_is_gone_ends() -> None:
    """The kernel closes the supervisor's end of the pipe after any end of the supervisor."""
    command = [sys.executable, "-m", "grete.worker.life.process_main"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=LIMIT_S, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.usefixtures("started_by_exec")  # the start itself
@pytest.mark.parametrize("prewarmed", ["none", "waits", "dead"])
def test_a_worker_starts_with_or_without_a_prewarmed_worker(prewarmed: str, spec: WorkerSpec) -> None:
    """A prewarmed worker saves time and nothing else: output, exit code and status pipe are the same."""
    spawner = ProcessPool()
    if prewarmed != "none":
        spawner.warm()
    if prewarmed == "dead":
        assert spawner._prewarmed is not None
        spawner._prewarmed.process.kill()
        spawner._prewarmed.process.wait()
    started = spawner.start(spec)
    assert started.process.wait(LIMIT_S) == 4
    assert "no module 'tasks.missing'" in Path(spec.output).read_text()
    assert started.process.stdin is not None  # for orders, as long as it runs
    started.process.stdin.close()
    spawner.close()
