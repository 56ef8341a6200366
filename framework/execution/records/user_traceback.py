"""The traceback of a user's own code: what a person reads first, without the lines of Grete that called it."""

import traceback
from pathlib import Path

from grete.quoting import HIDDEN, shows_values

TEXT_MAX = 2_000  # characters kept, the last ones: a dead letter carries them, too
FRAMES_MAX = 20  # kept of each error, the last ones: a recursion's may be a thousand

_OURS = f"{Path(__file__).parents[2]}/"


def in_grete(file: str) -> bool:
    """Tell whether a line of this source file is one of Grete."""
    return file.startswith(_OURS)


def user_traceback(error: BaseException | None, *, whole: bool = False) -> str | None:
    """Return the traceback of ``error`` and of its causes from the first line outside of Grete; None: there is none.

    The errors have their texts where these are shown, or if it is to be ``whole``.
    """
    if error is None:
        return None
    found = traceback.TracebackException.from_exception(error, compact=True)
    if not _cut(found):
        return None
    told = "".join(found.format()).rstrip() if whole or shows_values() else bare_traceback(error)
    return told[-TEXT_MAX:]


def bare_traceback(error: BaseException) -> str:
    """Return the lines of code of ``error`` and of its causes, the first cause first, with no text but the classes."""
    parts: list[str] = []
    each: BaseException | None = error
    while each is not None and len(parts) < FRAMES_MAX:
        lines = traceback.format_list(traceback.extract_tb(each.__traceback__)[-FRAMES_MAX:])
        parts.insert(0, f"Traceback (most recent call last):\n{''.join(lines)}{type(each).__name__}: {HIDDEN}")
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return "\n\n".join(parts)


def user_line(error: BaseException) -> str:
    """Return " (FILE, line N)" for the last line outside of Grete that ran, "" if there is none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    theirs = [f" ({file}, line {line})" for file, line in frames if not in_grete(file)]
    return theirs[-1] if theirs else ""


def _cut(found: traceback.TracebackException) -> bool:
    """Drop our lines above the user's, causes without one of theirs, and what is too deep; False: no line is left."""
    stack = found.stack
    first = next((i for i, frame in enumerate(stack) if not in_grete(frame.filename)), len(stack))
    stack[:] = stack[first:][-FRAMES_MAX:]
    if found.__cause__ is not None and not _cut(found.__cause__):
        found.__cause__, found.__suppress_context__ = None, True
    if found.__context__ is not None and not _cut(found.__context__):
        found.__context__ = None
    return bool(stack) or found.__cause__ is not None or found.__context__ is not None
