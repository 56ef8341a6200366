"""The embedded log: whether its file is whole, and who uses it. It is opened so that nothing can be written."""

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path

from grete.cli.doctor.report import Report

FAULTS_MAX = 5  # that SQLite names


def look(report: Report, directory: Path) -> None:
    """Look at the log of a job's directory, which need not exist yet."""
    path = directory / "log.db"
    if not path.exists():
        report.ok("log", str(path), "there is none: the first run makes it")
        return
    _whole(report, path)
    _supervisor(report, directory / "supervisor.lock")


def _whole(report: Report, path: Path) -> None:
    """Let SQLite read the whole file; it takes about a second for each gigabyte."""
    remedy = "restore the file from a copy, or delete the job's directory to start over; look after the disk"
    used = _is_used(path)
    found = _faults(path, used=used)
    if found and not used and _is_used(path):  # a job has started meanwhile: what was read may be half of a change
        found = _faults(path, used=True)
    size = f"{path.stat().st_size:,} bytes"
    report.check("log", str(path), f"whole, {size}" if not found else "; ".join(found), remedy, well=not found)


def _is_used(path: Path) -> bool:
    """Tell whether a process has the file open or has died with it: its last writes are then in a file beside it."""
    return path.with_name(f"{path.name}-wal").exists()


def _faults(path: Path, *, used: bool) -> list[str]:
    """Return what is wrong with the file. Where no process uses it, SQLite makes no file beside it either."""
    how = "mode=ro" if used else "mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as opened:
            found = [str(row[0]) for row in opened.execute(f"PRAGMA quick_check({FAULTS_MAX})")]
    except sqlite3.Error as error:
        return [f"{error} ({getattr(error, 'sqlite_errorname', 'SQLite')})"]
    return [] if found == ["ok"] else found


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
