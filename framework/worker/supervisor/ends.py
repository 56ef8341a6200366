"""The end of a child process, as the operating system tells it, and what it has left."""

import shutil
import signal
import time
from pathlib import Path

from grete.core.supervision.process_end import ExitKind, ProcessExit
from grete.protocol.report import EndReport
from grete.worker.supervisor.last_words import end_in_log

FREE_BYTES_MIN = 1 << 20  # a disk with less than this is full: a store or a log grows by more at a time
# What a process gets of itself: a library of C has found itself at fault, or the processor has.
FAULTS = {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}


def exit_of(code: int, reported: EndReport | None, log: Path) -> ProcessExit:
    """Return the end of a process; ``reported``: what it said itself, None: then its ``log`` is read.

    One whose disk is full may not have been able to say so: the free space beside its log tells it.
    """
    return ProcessExit(
        kind=_kind(code),
        code=code,
        text=code_text(code),
        reported=reported,
        logged=None if reported is not None else end_in_log(log),
        log=str(log),
        disk_full=free_bytes(log.parent) < FREE_BYTES_MIN,
        at_ms=time.time_ns() // 1_000_000,
    )


def _kind(code: int) -> ExitKind:
    if code in FAULTS:
        return ExitKind.ABORTED
    if code == -signal.SIGTERM:
        return ExitKind.TERMINATED
    return ExitKind.KILLED if code < 0 else ExitKind.EXIT


def code_text(code: int) -> str:
    """Return an exit code as text; Python has a signal as a negative one."""
    how = "aborted" if code in FAULTS else "killed"
    return f"{how} by {signal.Signals(-code).name}" if code < 0 else f"code {code}"


def free_bytes(directory: Path) -> int:
    """Return the number of free bytes on the disk of a directory."""
    return shutil.disk_usage(directory).free
