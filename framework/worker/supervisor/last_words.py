"""The end of a process that could not report it, as its log has it: it was killed, it hung, or it never began."""

import os
import re
from pathlib import Path

import msgspec

from grete.execution.records.user_traceback import in_grete
from grete.protocol.report import EndReport

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
