"""Locks on files, and addresses, that end with their process, also if it has forked.

A lock belongs to the open file, which a forked child has, too: it would keep what its killed parent had locked, and no
successor could start. So a child lets go of the files. What it inherits of Grete is not for it to use in any case.
"""

import fcntl
import os
from pathlib import Path

_opened: dict[int, tuple[int, int]] = {}  # handle → device and inode of the file that it had then


def open_lock(path: Path) -> int:
    """Open a lock file, or make it, for this process alone: no program that it starts has it. Raises OSError.

    A link is not followed: what it leads to would be written over.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    keep_from_children(handle)
    return handle


def keep_from_children(handle: int) -> None:
    """Let no forked child have an open file: a lock, or the socket of an address."""
    _opened[handle] = _identity(handle)


def try_lock(handle: int) -> None:
    """Take the lock. Raises OSError if another process has it."""
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(handle: int) -> None:
    """Let another process have it."""
    fcntl.flock(handle, fcntl.LOCK_UN)


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino


def _let_go() -> None:
    """Put another file in the place of each lock: its number may be closed still by what the child has inherited."""
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for handle, identity in _opened.items():
        try:
            if _identity(handle) == identity:  # else it was closed, and the number is another file's
                os.dup2(nothing, handle, inheritable=False)
        except OSError:  # it was closed
            pass
    os.close(nothing)
    _opened.clear()


os.register_at_fork(after_in_child=_let_go)
