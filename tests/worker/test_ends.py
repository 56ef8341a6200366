"""The reason of a worker's end, which metrics and the page show: it names what a person has to look at."""

import errno
import sqlite3
from pathlib import Path

import pytest

from grete.errors import ExitCode, Halted, LogAway, StoreCorrupted, TaskError, TransientError
from grete.halts import HaltCode
from grete.worker import ends
from grete.worker.end_log import end_report
from grete.worker.ends import end_of


def full() -> sqlite3.Error:
    """Return what SQLite raises on a full disk."""
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
    end = end_of(said, ExitCode.FAILED, tmp_path, silent=False, text="crashed, code 1")
    assert (end.reason, end.text) == (reason, "crashed, code 1" if said is None else said.text)


def test_a_task_that_was_given_up_has_the_reason_of_its_ends(tmp_path: Path) -> None:
    """The code says that it was given up, the reason what has failed; another halt is one."""
    given_up = chained(Halted("10 times", code=HaltCode.GIVEN_UP), TaskError("the code raised"))
    end = end_of(end_report(given_up, ()), ExitCode.HALTED, tmp_path, silent=False, text="")
    assert (end.reason, end.code) == ("task error", HaltCode.GIVEN_UP.value)
    lost = end_report(Halted("it is lost"), ())
    assert end_of(lost, ExitCode.HALTED, tmp_path, silent=False, text="").reason == "halted"
