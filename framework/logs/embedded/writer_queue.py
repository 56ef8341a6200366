"""The queue before SQLite's one writer, in place of SQLite's sleeping busy handler, under which a writer can starve."""

import os
import re
import time
from pathlib import Path

from grete.errors import LogAway
from grete.file_lock import open_lock, try_lock, unlock

HOLD_S_MAX = 10.0  # far above any transaction: a process that holds a lock for longer is stopped, or its disk is
PAUSE_MIN_S, PAUSE_MAX_S = 0.00002, 0.001  # between tries of the process that is next
PAUSE_QUEUED_S = 0.0005  # between tries of the others: the kernel's own wait knows no time-out


class WriterLock:
    """Two file locks, released by the kernel when their process dies. Not re-entrant.

    A process waits for the queue lock, and its holder alone is next for the writer lock. So a process that has just
    written cannot overtake it. Each wait has a time-out, because a process that is stopped (SIGSTOP, a debugger) keeps
    its locks.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the lock files ``<path>-lock`` and ``<path>-queue``, mode 0600. Raises OSError."""
        self.path = path.with_name(path.name + "-lock")
        self._queue_path = path.with_name(path.name + "-queue")
        self._queue = open_lock(self._queue_path)
        try:
            self._writer = open_lock(self.path)
        except OSError:
            os.close(self._queue)
            raise

    def __enter__(self) -> None:
        """Wait for the lock. Raises LogAway if one of the two is not free for HOLD_S_MAX: no fault of this process."""
        _wait(self._queue, self._queue_path, PAUSE_QUEUED_S, PAUSE_QUEUED_S)
        try:
            _wait(self._writer, self.path, PAUSE_MIN_S, PAUSE_MAX_S)
        finally:
            unlock(self._queue)

    def __exit__(self, *_: object) -> None:
        """Let the next one write."""
        unlock(self._writer)

    def close(self) -> None:
        """Close the lock files; what is held is released."""
        os.close(self._writer)
        os.close(self._queue)


def _wait(file: int, path: Path, pause_s: float, pause_s_max: float) -> None:
    """Take one of the locks. Raises LogAway after HOLD_S_MAX, with the process that holds it."""
    deadline = time.monotonic() + HOLD_S_MAX
    while True:
        try:
            try_lock(file)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LogAway(
                    f"{path}: held by another process for {HOLD_S_MAX:.0f} s: {_holder(path)}, then restart; what it "
                    "had not committed is undone if it is killed"
                ) from None
        else:
            return
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, pause_s_max)


def _holder(path: Path) -> str:
    """Return the process that holds the lock, with the remedy; without Linux's /proc, the way to find it."""
    try:
        inode = path.stat().st_ino
        pids = {int(pid) for pid, held in _HELD.findall(Path("/proc/locks").read_text()) if int(held) == inode}
        for pid in pids:
            # another file system may have a file of this number
            if any(path.samefile(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists()):
                command, state = _STAT.findall(Path(f"/proc/{pid}/stat").read_text())[0]
                if state in "Tt":  # stopped by a signal, or by a debugger
                    return f"process {pid} ({command}) is stopped: continue it (kill -CONT {pid}) or kill it"
                return f"process {pid} ({command}) holds it: see what it waits for, as its disk, or kill it"
    except OSError:  # it is gone, or another user's
        pass
    return "find it with `fuser -v` on this file, and continue it if it is stopped, or kill it"


_HELD = re.compile(r"^\d+: FLOCK .* (\d+) \w+:\w+:(\d+) ", re.MULTILINE)  # of /proc/locks: pid and inode
_STAT = re.compile(r"^\d+ \((.*)\) (\w)", re.DOTALL)  # of /proc/PID/stat: command and state
