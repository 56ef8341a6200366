"""What ended a worker, from the last lines of its log."""

import json
import os
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grete.execution.user_traceback import in_grete

TAIL_BYTES = 32 * 1024  # of a worker's log, searched for its last words
# ids of Grete's own lines: a line of user code may have any text, and has none
STARTED = "worker-started"  # the first of a worker that has begun
LOG_AWAY = "log-away"  # the last of a worker that has waited for the log for as long as it may
HUNG = "hung"  # ours, for the stacks that faulthandler writes
ENDS = {"halted", "refused", "unforeseen", "crashed", "store-corrupted", LOG_AWAY}
_SAID_BY_THE_CALLER = ("crashed", "halted", "refused", LOG_AWAY, HUNG)  # ids
_TIMEOUT = re.compile(r"Timeout \(([\d:]+)")
_FRAME = re.compile(r'  File "(?P<file>[^<].*)", line (?P<line>\d+) in (?P<function>.*)')


def last_words(log: Path) -> str:
    """Return the error that ended a worker and where its log is; only the latter if it has logged no error."""
    entry = last_entry(log)
    said = [str(entry[name]) for name in ("event", "error", "exc_info") if entry.get(name)]
    if len(said) > 1 and entry.get("id") in _SAID_BY_THE_CALLER:
        del said[0]
    return f"{': '.join(said)} (log: {log})" if said else f"(log: {log})"


def last_entry(log: Path) -> dict[str, Any]:
    """Return the line in which a worker says what ended it; {} if there is none."""
    lines = _tail(log).splitlines()
    life: list[dict[str, Any]] = []  # the lines since it has begun, the last one first
    for index, line in reversed(list(enumerate(lines))):
        if timeout := _TIMEOUT.match(line):
            return _hung(timeout[1], lines[index + 1 :])
        life.append(_entry(line))
        if life[-1].get("id") == STARTED:
            break
    own = next((entry for entry in life if entry.get("id") in ENDS), None)
    return own or _last_error(life)


def _last_error(life: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last error of a worker that has not said what ends it, {} if something good came behind it.

    It may be a line of user code, of a library, or of the interpreter.
    """
    for entry in life:
        if entry.get("level") in ("ERROR", "CRITICAL") and entry.get("event"):
            return entry
        if entry.get("id") and entry.get("level") == "INFO":
            break  # an earlier error was not its last word
    return {}


def traceback_in(entry: Mapping[str, Any]) -> str:
    """Return the traceback of the user's code in what a worker says of its end, on lines of its own, or ""."""
    found = entry.get("traceback")
    return "" if not found else f"\n{textwrap.indent(found, '  ')}"


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        if line.startswith('{"'):
            return {}  # ours, cut short by a full disk
        return {"level": "ERROR", "event": line.strip()}  # not ours: a traceback's last line, a signal's name
    return entry if isinstance(entry, dict) else {}


def _hung(seconds: str, stacks: list[str]) -> dict[str, Any]:
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
    return {
        "level": "ERROR",
        "id": HUNG,
        "event": HUNG,
        "error": error,
        "traceback": "\n".join(line[2:] for line in main),
    }


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
