"""Watches user code: says in the log that it blocks, and lets a worker report within a turn that takes long."""

import itertools
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from grete.execution.calls.shared import loop_of_calls
from grete.execution.records import user_traceback

BLOCKS_S = 1.0  # in one call of user code: far more than a record takes that asks no other system
AGAIN_S = 60.0  # between two lines
FRAMES_MAX = 20  # of a stack, the innermost ones

_EXECUTION = f"{Path(user_traceback.__file__).parents[1]}/"  # what calls user code

logger = logging.getLogger("grete")


class BlockingWatch:
    """Watches the thread that makes it, and that of async calls, until the end of a ``with`` block.

    Nothing is done per record: a second thread looks once in BLOCKS_S whether anything goes on.
    """

    def __init__(self, progress: Callable[[], tuple[int, object]], report: Callable[[str], None]) -> None:
        """``progress`` returns the turns of the loop, and a value that changes with each record.

        ``report`` is called, once in BLOCKS_S, while records are done in a turn that takes longer than that: with the
        line of user code that runs. The thread calls both.
        """
        self._progress, self._report = progress, report
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="grete-blocking", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch_calls(self, turns: int, again: float) -> tuple[int, float]:
        """Look whether an async function has kept the loop of the calls since ``turns``; return what to give next."""
        thread, reached = loop_of_calls()
        if thread is None or reached != turns or (now := time.monotonic()) < again:
            return reached, again
        stack = user_stack(sys._current_frames().get(thread), last=True)  # noqa: SLF001  # documented
        if stack is None:
            return reached, again
        logger.warning("your code blocks", extra={"since_s": BLOCKS_S, "stack": stack})
        return reached, now + AGAIN_S

    def _watch(self) -> None:
        seen, since, again = self._progress(), time.monotonic(), 0.0
        turns, calls_again = -1, 0.0
        while not self._over.wait(BLOCKS_S):
            turns, calls_again = self._watch_calls(turns, calls_again)
            now, reached = time.monotonic(), self._progress()
            if reached != seen:
                if reached[0] == seen[0]:
                    self._report(user_line_of(sys._current_frames().get(self._watched)))  # noqa: SLF001  # documented
                seen, since = reached, now
            elif now >= again and (stack := user_stack(sys._current_frames().get(self._watched))):  # noqa: SLF001  # documented
                again = now + AGAIN_S
                fields = {"since_s": round(now - since, 1), "stack": stack}
                logger.warning("your code blocks", extra=fields)


def user_line_of(frame: FrameType | None) -> str:
    """Return "FILE, line N, in NAME" for the first line that a task's execution has called; "": there is none."""
    called = _called(frame)
    return f"{called[0].filename}, line {called[0].lineno}, in {called[0].name}" if called else ""


def user_stack(frame: FrameType | None, *, last: bool = False) -> str | None:
    """Return the stack from the first line outside of Grete that a task's execution has called; None: there is none.

    ``last``: from the last such line; those before it are of the library that makes a call's attempts.
    """
    called = _called(frame, last=last)
    return "".join(traceback.format_list(called[-FRAMES_MAX:])).rstrip() if called else None


def _called(frame: FrameType | None, *, last: bool = False) -> list[traceback.FrameSummary]:
    frames = traceback.extract_stack(frame)
    begins = [
        index
        for index, (above, line) in enumerate(itertools.pairwise(frames), 1)
        if above.filename.startswith(_EXECUTION) and not user_traceback.in_grete(line.filename)
    ]
    return frames[begins[-1 if last else 0] :] if begins else []
