"""The end of a child process: its exit status, its log, and the free space of its disk."""

import os
import re
import shutil
import signal
import time
from pathlib import Path

import msgspec

from grete.core.supervision.process_end import ExitKind, ProcessExit
from grete.errors import ExitCode
from grete.execution.records.user_traceback import in_grete
from grete.protocol.report import EndReport

FREE_BYTES_MIN = 1 << 20  # a disk with less than this is full: a store or a log grows by more at a time
# What a process gets of itself: a library of C has found itself at fault, or the processor has.
FAULTS = {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}


def exit_of(code: int, reported: EndReport | None, log: Path, said: int | None = None) -> ProcessExit:
    """Return the end of a process; ``reported``: what it said itself, None: then its ``log`` is read.

    ``said``: the exit code that it reported. Without that a code means nothing: user code can make each. One whose disk
    is full may not have been able to say so: the free space beside its log tells it.
    """
    by_itself = code < 0 or code in (said, ExitCode.FAILED)
    return ProcessExit(
        kind=_kind(code),
        code=code if by_itself else ExitCode.FAILED,
        text=code_text(code) if by_itself else f"code {code}: the job's code, or a library, has ended the process",
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


TAIL_BYTES = 32 * 1024  # of a worker's log, searched for its last words
STARTED = "worker-started"  # the id of the first line of a worker that has begun: a line of user code has none
_TIMEOUT = re.compile(r"Timeout \(([\d:]+)")
_FRAME = re.compile(r'  File "(?P<file>[^<].*)", line (?P<line>\d+) in (?P<function>.*)')


class LogLine(msgspec.Struct, frozen=True):
    """A line of the log, as far as it is read."""

    level: str = ""
    id: str | None = None  # of Grete's own lines
    event: str = ""
    error: str | None = None
    exc_info: str | None = None


_LINE = msgspec.json.Decoder(LogLine)


def end_in_log(log: Path) -> EndReport | None:
    """Return the last words of a process in its log: the stacks of one that hung, or its last error.

    None: something good came behind that, or nothing was written.
    """
    lines = _tail(log).splitlines()
    life: list[LogLine] = []  # since it has begun, the last one first
    for index, line in reversed(list(enumerate(lines))):
        if timeout := _TIMEOUT.match(line):
            return _hung(timeout[1], lines[index + 1 :])
        life.append(_line_of(line))
        if life[-1].id == STARTED:
            break
    return _last_error(life)


def _last_error(life: list[LogLine]) -> EndReport | None:
    """Return the last error, which may be a line of user code, of a library, or of the interpreter."""
    for line in life:
        if line.level in ("ERROR", "CRITICAL") and line.event:
            return EndReport(reason="other", text=": ".join(filter(None, (line.event, line.error, line.exc_info))))
        if line.id and line.level == "INFO":
            break  # an earlier error was not its last word
    return None


def _line_of(text: str) -> LogLine:
    try:
        return _LINE.decode(text)
    except msgspec.ValidationError:
        return LogLine()  # JSON of another form: it is not ours
    except msgspec.DecodeError:
        if text.startswith('{"'):
            return LogLine()  # ours, cut short by a full disk
        return LogLine(level="ERROR", event=text.strip())  # not ours: a traceback's last line, a signal's name


def _hung(seconds: str, stacks: list[str]) -> EndReport:
    """Return the stacks of all threads, the main thread's last, the innermost call of each first."""
    main: list[str] = []
    for line in stacks:
        if line.startswith(("Thread ", "Current thread ")):
            main = []
        elif (frame := _FRAME.match(line)) and not in_grete(frame["file"]):
            main.append(line)
    error = f"it made no progress for {seconds}"
    if main and (frame := _FRAME.match(main[0])):
        error += f": it was in {frame['function']} ({frame['file']}, line {frame['line']})"
    return EndReport(reason="hung", text=error, traceback="\n".join(line[2:] for line in main))


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
