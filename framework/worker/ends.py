"""How a worker process has ended, as its supervisor, a page and a metric tell it."""

import shutil
import signal
import time
from pathlib import Path

import msgspec

from grete.errors import ExitCode
from grete.protocol.report import EndReport, Reason
from grete.settings import Settings

FREE_BYTES_MIN = 1 << 20  # a disk with less than this is full: a store or a log grows by more at a time
DOUBLINGS_MAX = 40  # of the wait before a restart: its bound is reached long before
# What a process gets of itself: a library of C has found itself at fault, or the processor has.
FAULTS = {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}


class WorkerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One end. ``text``: the error; ``traceback``: of the user's code, "" if there is none; ``code``: of a halt."""

    reason: Reason
    text: str
    traceback: str = ""
    code: str = ""
    at_ms: int  # since 1970


def end_of(said: EndReport | None, exit_code: int, directory: Path, *, silent: bool, text: str) -> WorkerEnd:
    """Return how a worker has ended; ``said``: its last words, ``text``: what its exit code and its silence say.

    A worker whose disk is full may not have been able to say so: the free space of ``directory`` tells it.
    """
    if said is not None:
        text = f"{text}: {said.text}" if exit_code in FAULTS else said.text
    return WorkerEnd(
        reason=_reason(said, exit_code, directory, silent=silent),
        text=text,
        traceback="" if said is None else said.traceback,
        code=said.code if said is not None and exit_code == ExitCode.HALTED else "",
        at_ms=time.time_ns() // 1_000_000,
    )


def _reason(said: EndReport | None, exit_code: int, directory: Path, *, silent: bool) -> Reason:
    known = None if said is None or said.reason == "other" else said.reason
    if exit_code == ExitCode.HALTED:
        return known or "halted"
    if silent:
        return "hung"
    if exit_code in FAULTS:
        return "aborted"
    if exit_code < 0:
        return known or "killed"
    if known != "hung" and free_bytes(directory) < FREE_BYTES_MIN:
        return "disk"
    return known or "other"


def free_bytes(directory: Path) -> int:
    """Return how much may still be written to the disk of a directory."""
    return shutil.disk_usage(directory).free


def restart_wait_ms(settings: Settings, ends: int) -> int:
    """Return how long a worker, or a task, waits after this number of ends in a row: not at all after the first."""
    doublings = min(ends, DOUBLINGS_MAX) - 2
    return 0 if ends == 1 else min(settings.restart_backoff_ms << doublings, settings.restart_backoff_ms_max)
