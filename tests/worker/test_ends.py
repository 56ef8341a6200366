"""The reason of a worker's end, which metrics and the page show: it names what a person has to look at."""

import errno
import sqlite3
from pathlib import Path

import pytest

from grete.core.supervision.process_end import ProcessExit, worker_end
from grete.errors import ExitCode, Halted, LogAway, StoreCorrupted, TaskError, TransientError
from grete.halts import HaltCode
from grete.protocol.ids import TopicPartition
from grete.protocol.report import ErrorPlace
from grete.state.read.checkpoints.commits import all_wirings
from grete.worker.logs.end_log import end_report
from grete.worker.supervisor import ends
from grete.worker.supervisor.ends import exit_of
from tasks.word_count import job as word_count


def full() -> sqlite3.Error:
    """Return the error of SQLite on a full disk."""
    sql = sqlite3.connect(":memory:")
    sql.execute("CREATE TABLE rows (value)")
    sql.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError, match="full") as raised:
        sql.executemany("INSERT INTO rows VALUES (?)", [("x" * 4_000,)] * 10)
    sql.close()
    return raised.value


def chained(error: Exception, cause: Exception) -> Exception:
    """Return an error that another one has caused."""
    error.__cause__ = cause
    return error


OTHER = OSError(errno.EACCES, "Permission denied", "log.db")


@pytest.mark.parametrize(
    ("error", "free", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "log.db"), 1 << 30, "disk"),
        (chained(TransientError("the write failed"), full()), 1 << 30, "disk"),
        (chained(TransientError("it failed"), Exception("IO error: No space left on device: ...")), 1 << 30, "disk"),
        (None, 0, "disk"),  # it could not say why
        (OTHER, 1 << 30, "other"),
        (TaskError("the code raised"), 1 << 30, "task error"),
        (StoreCorrupted("it cannot be read"), 1 << 30, "store corrupted"),
        (LogAway("nobody answers"), 1 << 30, "log away"),
    ],
)
def test_the_reason_names_what_to_look_at(
    error: Exception | None, free: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who sees it frees the disk, and does not look for a mistake in the code."""
    monkeypatch.setattr(ends, "free_bytes", lambda _: free)
    said = None if error is None else end_report(error, ())
    end = worker_end(exit_of(ExitCode.FAILED, said, tmp_path / "log"), "crashed, code 1", silent=False)
    assert (end.reason, end.text) == (reason, "crashed, code 1" if said is None else said.text)


def halted(error: Exception, directory: Path) -> ProcessExit:
    """Return the end of a process that has said that it halts."""
    return exit_of(ExitCode.HALTED, end_report(error, ()), directory / "log", said=ExitCode.HALTED)


def test_a_task_that_was_given_up_has_the_reason_of_its_ends(tmp_path: Path) -> None:
    """The code says that it was given up, the reason what has failed; another halt is one."""
    given_up = chained(Halted("10 times", code=HaltCode.GIVEN_UP), TaskError("the code raised"))
    end = worker_end(halted(given_up, tmp_path), "", silent=False)
    assert (end.reason, end.code) == ("task error", HaltCode.GIVEN_UP.value)
    lost = halted(Halted("it is lost"), tmp_path)
    assert lost.reason(silent=False) == "halted"


def test_the_place_of_an_error_is_reported() -> None:
    """With its stage and partition as fields, also of a task: no reader cuts a name."""
    words = TopicPartition("words", 0)
    task = all_wirings(word_count)[0]
    error = TaskError("no", task=task.name, stage=task.stage, topic="words", partition=words, offset=7)
    said = end_report(error, all_wirings(word_count)).place
    assert said == ErrorPlace(stage=task.stage, partition=0, topic="words", topic_partition=words, offset=7)
    assert end_report(error, ()).place.partition is None  # it is not among those that were here
    assert end_report(ValueError("no"), ()).place == ErrorPlace()
