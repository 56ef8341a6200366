"""How a worker process has ended, as its supervisor, a page and a metric tell it."""

import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from grete.errors import ExitCode
from grete.halts import HaltCode
from grete.protocol.report import Reason
from grete.settings import Settings
from grete.worker.last_words import HUNG, LOG_AWAY

FREE_BYTES_MIN = 1 << 20  # a disk with less than this is full: a store or a log grows by more at a time
DOUBLINGS_MAX = 40  # of the wait before a restart: its bound is reached long before
_OF_THE_DISK = ("No space left", "disk is full", "Disk quota exceeded", "File too large", "SQLITE_IOERR", "IO error")
# What a process gets of itself: a library of C has found itself at fault, or the processor has.
FAULTS = {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}


_BY_ERROR: dict[str, Reason] = {
    "TaskError": "task error",
    "SerdeError": "task error",
    "StoreCorrupted": "store corrupted",
}


class WorkerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One end. ``text``: the error; ``traceback``: of the user's code, "" if there is none; ``code``: of a halt."""

    reason: Reason
    text: str
    traceback: str = ""
    code: str = ""
    at_ms: int  # since 1970


def end_of(entry: Mapping[str, Any], exit_code: int, directory: Path, *, silent: bool, text: str) -> WorkerEnd:
    """Return how a worker has ended: ``entry`` is the last line of its log, if that says why, ``text`` is for people.

    A worker whose disk is full may not have been able to say so: the free space of ``directory`` tells it.
    """
    if exit_code in FAULTS and entry:
        text = f"{text}: {entry['event']}"  # a failed assertion, as libc writes it
    return WorkerEnd(
        reason=_reason(entry, exit_code, directory, silent=silent),
        text=str(entry.get("error") or text),
        traceback=str(entry.get("traceback") or ""),
        code=str(entry.get("code") or "") if exit_code == ExitCode.HALTED else "",
        at_ms=time.time_ns() // 1_000_000,
    )


def _reason(entry: Mapping[str, Any], exit_code: int, directory: Path, *, silent: bool) -> Reason:
    if exit_code == ExitCode.HALTED:
        given_up = entry.get("code") == HaltCode.GIVEN_UP.value  # then the last error says what to do
        return _BY_ERROR.get(str(entry.get("kind")), "halted") if given_up else "halted"
    if silent or entry.get("id") == HUNG:
        return "hung"
    if exit_code < 0:
        return "aborted" if exit_code in FAULTS else "killed"
    if any(words in str(entry) for words in _OF_THE_DISK) or free_bytes(directory) < FREE_BYTES_MIN:
        return "disk"
    if entry.get("id") == LOG_AWAY:
        return "log away"
    return _BY_ERROR.get(str(entry.get("kind")), "other")


def free_bytes(directory: Path) -> int:
    """Return how much may still be written to the disk of a directory."""
    return shutil.disk_usage(directory).free


def restart_wait_ms(settings: Settings, ends: int) -> int:
    """Return how long a worker, or a task, waits after this number of ends in a row: not at all after the first."""
    doublings = min(ends, DOUBLINGS_MAX) - 2
    return 0 if ends == 1 else min(settings.restart_backoff_ms << doublings, settings.restart_backoff_ms_max)
