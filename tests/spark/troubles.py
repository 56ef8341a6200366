"""Faults of an attempt in an executor, once each: called by a job's code or by a writer's input."""

import os
import signal
import time
from pathlib import Path

from pyspark import TaskContext

LIMIT_S = 240  # of a wait: executors start meanwhile


_BEGIN = 19  # when a process began, of what comes behind its name: the system gives its number to another one


def _stat(pid: int) -> list[str]:
    """Return the system's fields of a process behind its name: state, parent, … Raises FileNotFoundError."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_gone(killed: Path) -> bool:
    """Tell whether the process that ``kill_executor`` has noted down is no more."""
    pid, begin = killed.read_text().split()
    try:
        return _stat(int(pid))[_BEGIN] != begin
    except FileNotFoundError:
        return True


def kill_executor(once: Path) -> None:
    """Kill the executor's JVM, which has started the daemon that has forked this process; only the first time."""
    pid = int(_stat(os.getppid())[1])
    try:
        with once.open("x") as file:
            file.write(f"{pid} {_stat(pid)[_BEGIN]}")
    except FileExistsError:
        return
    os.kill(pid, signal.SIGKILL)


def die(directory: str) -> None:
    """Kill the executor that this runs in; only the first time."""
    kill_executor(Path(directory) / "killed")


def linger(directory: str) -> None:
    """Wait, the first time, until another attempt of the same stage has come here, too. Workers do not wait."""
    slow, twin = Path(directory) / "slow", Path(directory) / "twin"
    context = TaskContext.get()
    if context is None:
        return
    own = f"{context.stageId()} {context.taskAttemptId()}"
    try:
        with slow.open("x") as file:
            file.write(own)
    except FileExistsError:
        if slow.read_text() != own:
            twin.write_text(own)
        return
    end_s = time.monotonic() + LIMIT_S
    while not twin.exists():
        assert time.monotonic() < end_s, "this attempt waits for a twin that does not come"
        time.sleep(0.02)
