"""The end of a process that could not report it, as its log has it: it was killed, it hung, or it never began."""

import json
import os
import re
from pathlib import Path
from typing import Any

from grete.execution.user_traceback import in_grete
from grete.protocol.report import EndReport

TAIL_BYTES = 32 * 1024  # of a worker's log, searched for its last words
STARTED = "worker-started"  # the id of the first line of a worker that has begun: a line of user code has none
_TIMEOUT = re.compile(r"Timeout \(([\d:]+)")
_FRAME = re.compile(r'  File "(?P<file>[^<].*)", line (?P<line>\d+) in (?P<function>.*)')


def end_in_log(log: Path) -> EndReport | None:
    """Return what the last life of a process has left in its log: the stacks of one that hung, or its last error.

    None: something good came behind that, or nothing was written.
    """
    lines = _tail(log).splitlines()
    life: list[dict[str, Any]] = []  # the lines since it has begun, the last one first
    for index, line in reversed(list(enumerate(lines))):
        if timeout := _TIMEOUT.match(line):
            return _hung(timeout[1], lines[index + 1 :])
        life.append(_entry(line))
        if life[-1].get("id") == STARTED:
            break
    return _last_error(life)


def _last_error(life: list[dict[str, Any]]) -> EndReport | None:
    """Return the last error, which may be a line of user code, of a library, or of the interpreter."""
    for entry in life:
        if entry.get("level") in ("ERROR", "CRITICAL") and entry.get("event"):
            said = [str(entry[name]) for name in ("event", "error", "exc_info") if entry.get(name)]
            return EndReport(reason="other", text=": ".join(said))
        if entry.get("id") and entry.get("level") == "INFO":
            break  # an earlier error was not its last word
    return None


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        if line.startswith('{"'):
            return {}  # ours, cut short by a full disk
        return {"level": "ERROR", "event": line.strip()}  # not ours: a traceback's last line, a signal's name
    return entry if isinstance(entry, dict) else {}


def _hung(seconds: str, stacks: list[str]) -> EndReport:
    """Return what the stacks of all threads say, the main thread's last, the innermost call of each first."""
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
