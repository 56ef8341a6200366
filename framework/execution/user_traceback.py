"""The traceback of a user's own code: what a person reads first, without the lines of Grete that called it."""

import traceback
from pathlib import Path

import framework
import protocol

TEXT_MAX = 2_000  # characters kept, the last ones: a dead letter carries them, too
FRAMES_MAX = 20  # kept of each error, the last ones: a recursion's may be a thousand

_OURS = tuple(f"{Path(str(package.__file__)).parent}/" for package in (framework, protocol))


def user_traceback(error: BaseException | None) -> str | None:
    """Return the traceback of ``error`` and of its causes from the first line outside of Grete; None: there is none."""
    if error is None:
        return None
    found = traceback.TracebackException.from_exception(error, compact=True)
    if not _cut(found):
        return None
    return "".join(found.format()).rstrip()[-TEXT_MAX:]


def user_line(error: BaseException) -> str:
    """Return " (FILE, line N)" for the last line outside of Grete that ran, "" if there is none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    theirs = [f" ({file}, line {line})" for file, line in frames if not file.startswith(_OURS)]
    return theirs[-1] if theirs else ""


def _cut(found: traceback.TracebackException) -> bool:
    """Drop our lines above the user's, and what is too deep; return whether a line of the user's is left."""
    each: traceback.TracebackException | None = found
    theirs = False
    while each is not None:
        first = next((i for i, frame in enumerate(each.stack) if not frame.filename.startswith(_OURS)), len(each.stack))
        each.stack[:] = each.stack[first:][-FRAMES_MAX:]
        theirs |= bool(each.stack)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return theirs
