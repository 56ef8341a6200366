"""The queue before SQLite's one writer: waiters sleep in the kernel instead of in SQLite's busy handler, which polls and starves."""

import fcntl
import os
from pathlib import Path
from types import TracebackType


class WriterLock:
    """A file lock held while writing, released by the kernel when its process dies. Not re-entrant."""

    def __init__(self, path: Path) -> None:
        """Open or make the lock file, mode 0600. Raises OSError."""
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file; what it held is released."""
        os.close(self._descriptor)
