"""Worker processes under real signals: what they restore, whom they give way to, how they end."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from grete.errors import ConfigError, ExitCode
from grete.job.directory import JobDirectory
from grete.settings import Settings
from grete.worker.process.worker import OpenedLog, Worker
from tasks.word_count import job
from tests.support.reports import positions
from tests.support.stopping import stop_without_locks
from tests.worker.workers import TASK, WorkerUnderTest, say, totals, until_committed, word_log


def test_same_host_redoes_and_another_host_restores(tmp_path: Path) -> None:
    """A killed worker comes back from its own disk without a restore; without the disk, from the changelog (R1)."""
    directory = tmp_path / "job"
    log = word_log(directory)
    say(log, "a b", "a")
    with WorkerUnderTest(directory) as first:
        first.running()
        until_committed(log, 2)
        first.signal(signal.SIGKILL)
        assert first.ends() == -signal.SIGKILL
    say(log, "a c")
    with WorkerUnderTest(directory) as second:
        counters = second.running()["counters"]
        assert (counters.get("redos"), counters.get("restores")) == (1, None)
        until_committed(log, 3)
        second.signal(signal.SIGKILL)
        second.ends()
    shutil.rmtree(directory / "state")
    say(log, "b")
    with WorkerUnderTest(directory) as third:
        status = third.running()
        assert (status["counters"].get("redos"), status["counters"]["restores"]) == (None, 1)
        assert status["counters"]["restored records"] >= 3
        until_committed(log, 4)
    assert totals(log) == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("c", 1), ("b", 2)]


def test_a_paused_worker_that_wakes_up_gives_way(tmp_path: Path) -> None:
    """After a pause it finds itself fenced, exits 3 and writes nothing: no output is lost or doubled (C2, C5)."""
    directory = tmp_path / "job"
    log = word_log(directory)
    say(log, *["a b"] * 50)
    with WorkerUnderTest(directory) as zombie:
        zombie.running()
        until_committed(log, 50)
        say(log, *["a b"] * 50)
        stop_without_locks(zombie.process, directory)
        with WorkerUnderTest(directory, f"--state-directory={tmp_path / 'elsewhere'}") as successor:
            assert successor.running()["counters"]["restores"] == 1
            until_committed(log, 100)
            say(log, *["a b"] * 50)
            zombie.signal(signal.SIGCONT)
            assert zombie.ends() == ExitCode.FENCED
            until_committed(log, 150)
    assert totals(log) == [(word, number) for number in range(1, 151) for word in "ab"]


def test_a_second_worker_on_the_same_state_is_kept_out(tmp_path: Path) -> None:
    """Two processes never have one store open: the second one exits 1, to be started again later."""
    directory = tmp_path / "job"
    word_log(directory)
    with WorkerUnderTest(directory) as first:
        first.running()
        with WorkerUnderTest(directory) as second:
            assert second.ends() == ExitCode.FAILED
        assert "in use by another process" in second.log_path.read_text()
        assert first.process.poll() is None


def test_a_graceful_stop_commits_what_was_processed(tmp_path: Path) -> None:
    """SIGTERM closes the open checkpoint and exits 0: nothing is processed again (R6)."""
    directory = tmp_path / "job"
    log = word_log(directory)
    with WorkerUnderTest(directory, "--set=checkpoint_interval_ms=60000") as worker:
        worker.running()
        say(log, "a b c")
        worker.until(lambda status: status["counters"].get("external records") == 1)
        worker.signal(signal.SIGTERM)
        assert worker.ends() == ExitCode.DONE
    assert totals(log) == [("a", 1), ("b", 1), ("c", 1)]
    with WorkerUnderTest(directory) as again:
        assert positions(again.running()) == {"sentences[0]": 1}


def test_a_worker_ends_with_its_supervisor(tmp_path: Path) -> None:
    """A worker whose status pipe has no reader stops, so that a successor finds the state free."""
    directory = tmp_path / "job"
    word_log(directory)
    with WorkerUnderTest(directory) as worker:
        worker.running()
        worker.leave()
        assert worker.ends() == ExitCode.DONE


def test_a_damaged_store_is_wiped_and_restored(tmp_path: Path) -> None:
    """The changelog is the truth: a store that cannot be opened costs a restore, nothing else."""
    directory = tmp_path / "job"
    log = word_log(directory)
    say(log, "a a")
    with WorkerUnderTest(directory) as first:
        first.running()
        until_committed(log, 1)
    (directory / "state" / TASK / "CURRENT").write_text("MANIFEST-nonsense\n")
    say(log, "a")
    with WorkerUnderTest(directory) as second:
        assert second.running()["counters"]["restores"] == 1
        until_committed(log, 2)
    assert "wiped" in second.log_path.read_text()
    assert totals(log) == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set=processing_guarantee=at-least-once"], "was made with guarantee exactly-once"),
    ],
)
def test_a_worker_that_cannot_work_halts_with_a_reason(tmp_path: Path, options: list[str], words: str) -> None:
    """Exit code 4: no restart helps, a person must look (C5). The reason is in its log, one JSON object a line."""
    directory = tmp_path / "job"
    log = word_log(directory)
    log.produce_with_meta([], {"guarantee": b"exactly-once"})
    with WorkerUnderTest(directory, *options) as worker:
        assert worker.ends() == ExitCode.HALTED
    (entry,) = [json.loads(line) for line in worker.log_path.read_text().splitlines()]
    assert words in entry["error"]


@pytest.mark.parametrize(
    ("reference", "options", "words"),
    [
        ("tasks.word_count", ["--stage=nobody"], "no stage 'nobody'"),
        ("tasks.word_count", ["--partition=7"], "partitions 0 to 0, not 7"),
        ("tasks.word_count", ["--set=checkpoint_interval_ms=0"], "must be 1 or more"),
        (
            "tasks.word_count",
            ["--set=processing_guarantee=maybe"],
            "choose exactly-once or at-most-once or at-least-once or none",
        ),
        ("tasks.word_count", ["--log=pulsar"], "write embedded or kafka://host:port"),
        ("no_such_module", [], "no module 'no_such_module'"),
    ],
)
def test_a_mistake_in_the_command_line_of_a_worker_is_usage(
    tmp_path: Path, reference: str, options: list[str], words: str
) -> None:
    """Exit code 2, as of every command: nothing was started, and nothing is wrong with the job."""
    with WorkerUnderTest(tmp_path / "job", *options, reference=reference) as worker:
        assert worker.ends() == ExitCode.USAGE
    (entry,) = [json.loads(line) for line in worker.log_path.read_text().splitlines()]
    assert entry["event"] == "refused"
    assert words in entry["error"]
    assert not (tmp_path / "job" / "log.db").exists()


def test_a_partition_that_the_job_has_not_is_refused(tmp_path: Path) -> None:
    """Before anything is opened."""
    job_directory = JobDirectory(tmp_path / "job")
    log = word_log(tmp_path / "job")
    with pytest.raises(ConfigError, match="partitions 0 to 0, not 1"):
        Worker(job, [1], OpenedLog(log), job_directory, Settings())
