"""Raises the number of files that this process may have open: each task's RocksDB has up to 80.

Says what to do when none is left, or no room on the disk.
"""

import errno
import resource
import sqlite3
from contextlib import suppress

FILES_MAX = 1 << 20  # of 10,000 tasks; some systems allow a thousand times that, which costs tables in the kernel
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_SQLITE_OF_THE_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)  # the low byte of an extended code
_ROCKSDB_OF_THE_DISK = "IO error"  # its binding has one class of errors, and the status of RocksDB in the text
_FILES_ON_MACOS = 10_240  # it says "unlimited" and takes this


def allowed() -> int:
    """Return the number of files that a process may open once it has called ``raise_limit``."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    bounds = [FILES_MAX if limit == resource.RLIM_INFINITY else limit for limit in (soft, most)]
    return max(bounds[0], min(bounds[1], FILES_MAX))


def raise_limit() -> None:
    """Take what the system allows, as a JVM does. A login has 1,024 by default, and may have far more."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (allowed(), _FILES_ON_MACOS):
        if soft == resource.RLIM_INFINITY or wanted <= soft:
            return
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            return


def is_of_the_disk(error: BaseException | None) -> bool:
    """Tell whether an error, or one of its causes, says that the disk is full, or fails."""
    known = set[int]()  # causes may go in a circle
    while error is not None and id(error) not in known:
        known.add(id(error))
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            return True
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _SQLITE_OF_THE_DISK:
            return True
        if str(error).startswith(_ROCKSDB_OF_THE_DISK):
            return True
        error = error.__cause__ or error.__context__
    return False


def out_of(error: OSError) -> str | None:
    """Return of what the system has none left, and what to do, in a line; None: it says something else."""
    why = error.strerror or str(error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{why}: this process, or the machine, has no files left: raise ulimit -n, and start again"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        where = error.filename or "standard output or a file"
        return f"{where}: {why}: make room, or check the disk, and start again"
    return None
