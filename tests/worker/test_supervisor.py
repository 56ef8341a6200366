"""The supervisor over real worker processes: restarts, and the ends that no restart helps."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from grete.errors import ConfigError, ExitCode, Fenced, FrameworkError, Halted, TransientError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.protocol.report import TaskState
from grete.settings import Settings
from grete.worker.supervisor.ends import exit_of
from grete.worker.supervisor.local_job import LocalJob
from tasks.word_count import job
from tests.support.waiting import until
from tests.worker.workers import WorkerUnderTest, say, totals

BROKEN = """
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8
class Break(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    def init(self) -> None:
        raise RuntimeError("this task is broken")
    def process(self, record: Record[str, str]) -> None: ...
job = Job("broken", stages=[Break])
"""

ABORTS = """
import os, pathlib
from grete import Input, Job, Record, Task, Topic, utf8
class Abort(Task):
    lines = Input(Topic("sentences", key=utf8, value=utf8))
    def process(self, record: Record[str, str]) -> None:
        if not (once := pathlib.Path(__file__).with_suffix(".once")).exists():
            once.touch()
            os.write(2, b"python: rd.h:1: rd_do: Assertion `it->refcnt > 0' failed.\\n")
            os.abort()
job = Job("aborts", stages=[Abort])
"""

PAIR = """
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8
class Pass(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    seen = Store("seen", key=utf8, value=int64)
    def process(self, record: Record[str, str]) -> None: ...
job = Job("pair", stages=[Pass], partitions=2)
"""


def poll_until(local: LocalJob, condition: Callable[[], bool]) -> None:
    """Poll until the condition holds, or raise what the supervisor raises."""
    until(condition, step=lambda: local.poll(20), saw=lambda: (local.supervisor.workers, local.supervisor.news))


def running(local: LocalJob) -> bool:
    """Whether all tasks run."""
    statuses = [worker.reports.tasks for worker in local.supervisor.workers.values()]
    return all(status and all(task.status is TaskState.RUNNING for task in status.values()) for status in statuses)


def test_a_killed_worker_is_restarted_and_the_job_goes_on(tmp_path: Path) -> None:
    """The dead are restarted, inputs are seen to be used up, and a stop is graceful: each word counted once."""
    job_directory = JobDirectory(tmp_path / "job")
    with LocalJob(job, "tasks.word_count", job_directory, Settings()) as local:
        say(local.metadata, *["a b"] * 40)
        with pytest.raises(ConfigError, match="already has a supervisor"):
            LocalJob(job, "tasks.word_count", job_directory, Settings())
        ends = local.ends()
        poll_until(local, lambda: local.drained(ends))
        worker = local.supervisor.workers[0]
        local.supervisor.kill(0)
        say(local.metadata, *["a b"] * 40)
        assert not local.drained(local.ends())
        poll_until(local, lambda: local.drained(local.ends()))
        assert (worker.starts, worker.restarts.crashes, local.supervisor.news) == (2, 0, [])  # we killed it: no news
        assert local.through() == local.ends()
        assert local.records_through(local.ends()) == (80, 80)
        local.stop()
        assert worker.exit_code == 0
        assert totals(local.log) == [(word, number) for number in range(1, 81) for word in "ab"]
    with LocalJob(job, "tasks.word_count", job_directory, Settings()) as local:
        assert sum(local.committed().values()) == 80  # from the log, before any worker has said so
        say(local.metadata, "a b")
        assert (local.records_through(local.ends()), local.records_committed()) == ((0, 1), 0)  # in this run


def test_a_fenced_worker_is_not_restarted(tmp_path: Path) -> None:
    """Another process has taken the partition: the supervisor's caller must know (C5)."""
    with LocalJob(job, "tasks.word_count", JobDirectory(tmp_path / "job"), Settings()) as local:
        poll_until(local, lambda: running(local))
        with WorkerUnderTest(tmp_path / "job", f"--state-directory={tmp_path / 'other'}") as thief:
            with pytest.raises(Fenced, match="another process has taken its partition"):
                poll_until(local, lambda: False)
            thief.running()
        assert local.supervisor.workers[0].starts == 1


def test_a_worker_that_was_stopped_by_hand_is_missed(tmp_path: Path) -> None:
    """Exit code 0 without having been asked: the job cannot come to its end."""
    with LocalJob(job, "tasks.word_count", JobDirectory(tmp_path / "job"), Settings()) as local:
        poll_until(local, lambda: running(local))
        process = local.supervisor.process(0)
        assert process is not None
        process.send_signal(signal.SIGTERM)
        with pytest.raises(FrameworkError, match="stopped from outside"):
            poll_until(local, lambda: False)


def test_a_worker_that_always_crashes_is_given_up(tmp_path: Path) -> None:
    """After restarts_max crashes without progress in between, with the task's own error as the reason."""
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    settings = Settings(restarts_max=1, restart_backoff_ms=1)
    with LocalJob(load_job(str(path)), str(path), JobDirectory(tmp_path / "job"), settings) as local:
        with pytest.raises(Halted, match=r"crashed 2 times .* this task is broken") as given_up:
            poll_until(local, lambda: False)
        assert (given_up.value.task, given_up.value.stage) == ("break-0", "break")  # as the worker's log line has them
        assert local.supervisor.workers[0].starts == 2
        (news,) = local.supervisor.news
        assert "worker 0 crashed, code 1" in news
        assert "restart in 0.0 s" in news


def test_a_worker_that_a_library_aborts_is_restarted_and_says_why(tmp_path: Path) -> None:
    """It costs a restart. What libc has written is told, not a lack of memory."""
    path = tmp_path / "aborts.py"
    path.write_text(ABORTS)
    with LocalJob(load_job(str(path)), str(path), JobDirectory(tmp_path / "job"), Settings()) as local:
        say(local.metadata, "a")
        worker = local.supervisor.workers[0]
        poll_until(local, lambda: worker.restarts.last is not None)
        assert worker.restarts.last is not None
        why = "aborted by SIGABRT: python: rd.h:1: rd_do: Assertion `it->refcnt > 0' failed."
        assert (worker.restarts.last.reason, worker.restarts.last.text) == ("aborted", f"was {why}")
        poll_until(local, lambda: local.drained(local.ends()))
        assert (worker.starts, [why in news for news in local.supervisor.news]) == (2, [True])


def test_an_empty_commit_between_two_crashes_is_no_progress(tmp_path: Path) -> None:
    """Checkpoints of an idle task continue, too; only what was read and committed begins the count again."""
    settings = Settings(checkpoint_interval_ms=20, idle_checkpoint_interval_ms=20, restarts_max=2, restart_backoff_ms=1)
    with LocalJob(job, "tasks.word_count", JobDirectory(tmp_path / "job"), settings) as local:
        (worker,) = local.supervisor.workers.values()

        def killed_once_it_has_committed() -> None:
            poll_until(local, lambda: running(local))
            before = worker.reports.checkpoint_id
            poll_until(local, lambda: worker.reports.checkpoint_id > before)
            process = local.supervisor.process(0)
            assert process is not None
            os.kill(process.pid, signal.SIGKILL)
            poll_until(local, lambda: not worker.running or worker.reports.tasks == {})

        for crashes in (1, 2):
            killed_once_it_has_committed()
            poll_until(local, lambda: running(local))
            assert worker.restarts.crashes == crashes
        say(local.metadata, "a b")
        poll_until(local, lambda: local.drained(local.ends()))
        assert (worker.restarts.crashes, worker.restarts.last) == (0, None)
        for _ in range(2):
            killed_once_it_has_committed()
        with pytest.raises(Halted, match=r"crashed 3 times without progress between \(killed by SIGKILL\)"):
            killed_once_it_has_committed()


def test_a_fenced_worker_ends_alone(tmp_path: Path) -> None:
    """The workers of the other partitions go on; when all partitions are taken, there is nothing left to supervise."""
    path = tmp_path / "pair.py"
    path.write_text(PAIR)
    directory = tmp_path / "job"

    def thief(partition: int) -> WorkerUnderTest:
        other = f"--state-directory={tmp_path / 'other'}"
        return WorkerUnderTest(directory, other, reference=str(path), partition=partition, task=f"pass-{partition}")

    with LocalJob(load_job(str(path)), str(path), JobDirectory(directory), Settings()) as local:
        first, second = local.supervisor.workers.values()
        poll_until(local, lambda: running(local))
        with thief(0) as one:
            poll_until(local, lambda: first.exit_code == ExitCode.FENCED)
            assert "worker 0 was fenced: another process has taken its partition" in local.supervisor.news[-1]
            with pytest.raises(Fenced, match="worker 0 was fenced"):
                local.require_all()  # as `grete run` asks, which cannot see how far the other one comes
            position = second.reports.tasks["pass-1"].checkpoint_id
            poll_until(local, lambda: second.reports.tasks["pass-1"].checkpoint_id > position)
            assert (second.starts, len(local.supervisor.news)) == (1, 1)
            one.running()
            with thief(1), pytest.raises(Fenced, match="worker 0 and worker 1 were fenced"):
                poll_until(local, lambda: False)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            '{"level": "ERROR", "id": "crashed", "event": "crashed", "error": "disk full"}\n',
            "crashed: disk full (log: ",
        ),
        (
            '{"level": "ERROR", "event": "old"}\n{"level": "INFO", "id": "worker-started", "event": "it started"}\n',
            "(log: ",
        ),
        (
            '{"level": "INFO", "id": "worker-started", "event": "worker started"}\nSegmentation fault\n',
            "Segmentation fault",
        ),
        (
            '{"level": "ERROR", "id": "crashed", "event": "crashed", "error": "disk full"}\n{"level": "ERROR", "eve',
            "crashed: disk full (log: ",
        ),
        ("", "(log: "),
    ],
)
def test_last_words_are_those_of_the_last_life(tmp_path: Path, lines: str, words: str) -> None:
    """An error of an earlier life explains nothing; what is no log line of ours may."""
    log = tmp_path / "worker-0.log"
    log.write_text(lines)
    assert exit_of(1, None, log).words.startswith(words)


def test_a_worker_that_is_killed_while_it_stops_was_not_slow(tmp_path: Path) -> None:
    """By the kernel, or by a person: it is told as that, and no time-out is named."""
    with LocalJob(job, "tasks.word_count", JobDirectory(tmp_path / "job"), Settings()) as local:
        poll_until(local, lambda: running(local))
        process = local.supervisor.process(0)
        assert process is not None
        process.send_signal(signal.SIGSTOP)  # so that it does not stop first
        process.kill()
        local.stop()
        (news,) = local.supervisor.news
        assert news.startswith("worker 0 was killed by SIGKILL while it stopped; what it had not committed")
        with pytest.raises(TransientError, match="SIGKILL while it stopped") as told:
            local.require_stopped()
        assert told.value.setting is None


def test_a_worker_that_is_stopped_while_it_starts_says_so(tmp_path: Path) -> None:
    """It takes no signals yet, so SIGTERM ends it: it was not slow to stop."""
    path = tmp_path / "slow.py"
    path.write_text(PAIR.replace("partitions=2", "partitions=1"))
    slow = load_job(str(path))
    reached = "from pathlib import Path; import threading; Path(__file__).with_name('reached').touch()"
    path.write_text(f"{reached}; threading.Event().wait()\n")
    with LocalJob(slow, str(path), JobDirectory(tmp_path / "job"), Settings()) as local:
        poll_until(local, (tmp_path / "reached").exists)
        local.stop()
        assert local.supervisor.news == [
            "worker 0 was ended by SIGTERM while it was starting: it had processed nothing"
        ]
