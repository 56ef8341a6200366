"""A worker that is stopped as by a debugger, at a place where it holds up no other."""

import fcntl
import signal
import subprocess
from pathlib import Path

LOCKS = ("log.db-queue", "log.db-lock")  # of the embedded log: who is next to write, who writes


def stop_without_locks(process: "subprocess.Popen[bytes]", directory: Path) -> None:
    """Stop a process by SIGSTOP when it holds none of its log's locks, or no other process could write."""
    while True:
        process.send_signal(signal.SIGSTOP)
        while _state(process.pid) not in "TZ":
            assert process.poll() is None  # it goes on for a moment, in which it may take a lock
        if all(is_free(directory / name) for name in LOCKS):
            return
        process.send_signal(signal.SIGCONT)


def _state(pid: int) -> str:
    """Return the letter that the kernel has for a process's state: T is stopped, Z dead."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_free(path: Path) -> bool:
    """Tell whether a file lock can be had: no process holds it."""
    with path.open("rb+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
