"""The embedded log: whether it is whole, and who uses it. It is opened so that nothing can be written."""

import contextlib
import fcntl
import os
import sqlite3
from collections import deque
from pathlib import Path

from grete.api.jobs.job import Job
from grete.cli.doctor.report import Report
from grete.cli.doctor.stored import look_at_changelogs
from grete.errors import FrameworkError
from grete.logs.embedded.reader import EmbeddedReader

FAULTS_MAX = 5  # that SQLite names


def look(report: Report, job: Job, directory: Path) -> None:
    """Look at the log of a job's directory, which need not exist yet."""
    path = directory / "log.db"
    if not path.exists():
        report.ok("log", str(path), "there is none: the first run makes it")
        return
    if _whole(report, path):
        _changelogs(report, job, path)
    _supervisor(report, directory / "supervisor.lock")


def _changelogs(report: Report, job: Job, path: Path) -> None:
    """Look at the last commits."""
    used = _is_used(path)
    found = _last_commits(job, path, used=used)
    if not used and _is_used(path):  # as for the whole file
        found = _last_commits(job, path, used=True)
    report.findings += found.findings


def _last_commits(job: Job, path: Path, *, used: bool) -> Report:
    report = Report()
    try:
        with contextlib.closing(EmbeddedReader(path, lambda _: _opened(path, used=used))) as log:
            deque(look_at_changelogs(report, job, log), maxlen=0)
    except FrameworkError as error:
        report.failed("changelog", job.name, error)
    return report


def _whole(report: Report, path: Path) -> bool:
    """Let SQLite read the whole file, and return whether it is whole; it takes about a second for each gigabyte."""
    remedy = "restore the file from a copy, or delete the job's directory to start over; check the disk"
    used = _is_used(path)
    found = _faults(path, used=used)
    if found and not used and _is_used(path):  # a job has started meanwhile: what was read may be half of a change
        found = _faults(path, used=True)
    size = f"{path.stat().st_size:,} bytes"
    report.check("log", str(path), f"whole, {size}" if not found else "; ".join(found), remedy, well=not found)
    return not found


def _is_used(path: Path) -> bool:
    """Tell whether a process has the file open or has died with it: its last writes are then in a file beside it."""
    return path.with_name(f"{path.name}-wal").exists()


def _faults(path: Path, *, used: bool) -> list[str]:
    """Return the findings about the file."""
    try:
        with contextlib.closing(_opened(path, used=used)) as opened:
            found = [str(row[0]) for row in opened.execute(f"PRAGMA quick_check({FAULTS_MAX})")]
    except sqlite3.Error as error:
        return [f"{error} ({getattr(error, 'sqlite_errorname', 'SQLite')})"]
    return [] if found == ["ok"] else found


def _opened(path: Path, *, used: bool) -> sqlite3.Connection:
    """Open the file to read it. Where no process uses it, SQLite makes no file beside it either."""
    how = "mode=ro" if used else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)


def _supervisor(report: Report, lock: Path) -> None:
    if not lock.exists():
        report.ok("supervisor", str(lock), "none has run here")
        return
    handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        report.ok("supervisor", str(lock), f"process {lock.read_text() or 'unknown'} runs the job")
    else:
        report.ok("supervisor", str(lock), "none runs; a lock ends with its process, so the file does no harm")
    finally:
        os.close(handle)
