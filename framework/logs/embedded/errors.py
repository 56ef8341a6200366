"""Classification of errors of SQLite and the disk: the class says what to do, the text names the file."""

import errno
import os
import sqlite3
from pathlib import Path

from grete.errors import ConfigError, FrameworkError, Halted, TransientError
from grete.halts import HaltCode

BUSY_MS = 10_000  # only a foreign program can make SQLite itself wait: our writers queue at the writer lock
HANDLES = 8  # that opening takes: database, its log, the index of that, two locks, two of the notifier, the folder
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})


class FileGuard:
    """A context for everything that touches the file: errors come out as ours, and a use after a fork is refused."""

    def __init__(self, path: Path) -> None:
        """Guard the use of ``path`` by this process."""
        self._path = path
        self._pid: int | None = os.getpid()

    def end(self) -> None:
        """Refuse every use from now on: a file lock by a number that is another file's by now would be a disaster."""
        self._pid = None

    def __enter__(self) -> None:
        if self._pid is None:
            raise ValueError(f"{self._path}: used after close()")
        # A forked child would share the file locks and SQLite's state with its parent: two writers at once.
        if os.getpid() != self._pid:
            raise ConfigError(
                f"{self._path}: opened in process {self._pid}, used in {os.getpid()} after a fork: open it in the child"
            )

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Raise what the error means; what is a bug of the caller (a closed log, another thread) passes as it is."""
        if isinstance(error, sqlite3.Error | OSError | OverflowError) and not isinstance(
            error, sqlite3.ProgrammingError
        ):
            raise explain(self._path, error) from error


def explain(path: Path, error: sqlite3.Error | OSError | OverflowError) -> FrameworkError:
    """Return the error to raise instead of ``error``."""
    if isinstance(error, OSError):
        if error.errno in _DISK:
            remedy = "raise ulimit -n" if error.errno in (errno.EMFILE, errno.ENFILE) else "free disk space"
            return TransientError(f"{path}: {error.strerror}: {remedy}, then restart")
        return ConfigError(f"{path}: {error.strerror}: name a file in a directory that exists and that you may write")
    name = getattr(error, "sqlite_errorname", "")
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISMATCH) & 0xFF:  # the low byte: the primary code
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:  # ERROR: a table is not there
            return corrupt(path, str(error))
        case sqlite3.SQLITE_FULL:
            return TransientError(
                f"{path}: {error}: free disk space, then restart; nothing of this write is in the log"
            )
        case sqlite3.SQLITE_IOERR:
            return TransientError(f"{path}: {error} ({name}): check the disk and its free space, then restart")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return TransientError(f"{path}: {error} for {BUSY_MS} ms: end the other program that uses it, then restart")
        case sqlite3.SQLITE_CANTOPEN if not _handles_left():
            return TransientError(f"{path}: {error}: no file handles are left: raise ulimit -n, then restart")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return ConfigError(f"{path}: {error}: you must be allowed to read and write the file and its directory")
        case _:
            return ConfigError(
                f"{path}: {error}: keys, values and headers must be bytes or None, timestamps integers of 64 bits"
            )


def _handles_left() -> bool:
    """Tell whether this process may open all that a log needs: what it had got when one was missing is free again."""
    taken = list[int]()
    try:
        taken.extend(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(HANDLES))
    except OSError:
        return False
    finally:
        for handle in taken:
            os.close(handle)
    return True


def corrupt(path: Path, what: str) -> Halted:
    """Return the error for a file that contradicts itself."""
    return Halted(
        f"{path}: {what}: corrupt: restore the file from a copy, or delete the job directory to start over",
        code=HaltCode.LOG_FILE_DAMAGED,
    )
