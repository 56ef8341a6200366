"""The queue before SQLite's one writer, in place of SQLite's sleeping busy handler, under which a writer can starve."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from framework.errors import TransientError

HOLD_S_MAX = 10.0  # far above any transaction: who holds the lock longer is stopped, or its disk is
PAUSE_MIN_S, PAUSE_MAX_S = 0.00002, 0.001  # between tries of the process that is next


class WriterLock:
    """Two file locks, released by the kernel when their process dies. Not re-entrant.

    Waiters sleep in the kernel for the queue lock; its holder alone is next for the writer lock. So a process that has
    just written cannot overtake it, and only one process tries again and again, which is what makes a time-out
    possible.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the lock files ``<path>-lock`` and ``<path>-queue``, mode 0600. Raises OSError."""
        self.path = path.with_name(path.name + "-lock")
        self._queue = _open(path.with_name(path.name + "-queue"))
        try:
            self._writer = _open(self.path)
        except OSError:
            os.close(self._queue)
            raise

    def __enter__(self) -> None:
        """Wait for the lock. Raises TransientError if one process holds it for HOLD_S_MAX while this one is next."""
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        try:
            deadline = time.monotonic() + HOLD_S_MAX
            pause = PAUSE_MIN_S
            while not self._try():
                if time.monotonic() > deadline:
                    raise TransientError(
                        f"{self.path}: held by another process for {HOLD_S_MAX:.0f} s: find it with `fuser -v` on this "
                        "file; if it is stopped, continue or kill it (its transaction is undone), then restart"
                    )
                time.sleep(pause)
                pause = min(pause * 1.5, PAUSE_MAX_S)
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the next one write."""
        fcntl.flock(self._writer, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock files; what is held is released."""
        os.close(self._writer)
        os.close(self._queue)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _open(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
