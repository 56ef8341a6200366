"""Watches user code: says in the log that it blocks, and lets a worker report within a turn that takes long.

So a process that says nothing at all runs no thread of Python any more: it is stopped, or C code holds the interpreter.
"""

import itertools
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Protocol, Self

from grete.execution.calls.shared import loop_of_calls
from grete.execution.records import user_traceback
from grete.protocol.report import Blocked, CodeAt

BLOCKS_S = 1.0  # in one call of user code: far more than a record takes that asks no other system
SAMPLES_S = 0.1  # between two looks at the key that is processed, in a worker that is busy
AGAIN_S = 60.0  # between two lines
FRAMES_MAX = 20  # of a stack, the innermost ones

_EXECUTION = f"{Path(user_traceback.__file__).parents[1]}/"  # what calls user code

logger = logging.getLogger("grete")


class ReportsWithin(Protocol):
    """The reports of a worker, as the thread that watches it makes them. Any thread may call."""

    def send_within(self, line: str, blocked: Blocked | None, *, goes_on: bool) -> None:
        """Report within a turn that takes long: the ``line`` of user code that runs, or in what it is ``blocked``.

        ``goes_on``: whether a record or a timer is done since the last look.
        """

    def sample(self) -> bool:
        """Look which key is processed; return whether one is."""

    def calls_are(self, blocked: Blocked | None) -> None:
        """Let the next reports say in what the loop of the calls is held up, None: it turns."""


class BlockingWatch:
    """Watches the thread that makes it, and that of async calls, until the end of a ``with`` block.

    Nothing is done per record: a second thread looks once in BLOCKS_S whether anything goes on, and more often which
    keys are processed, while there are any.
    """

    def __init__(self, progress: Callable[[], tuple[int, object]], reports: ReportsWithin) -> None:
        """``progress`` returns the turns of the loop, and a value that changes with each record.

        ``reports`` are made, once in BLOCKS_S, in a turn that takes longer than that. The thread calls both.
        """
        self._progress, self._reports = progress, reports
        self._watched = threading.get_ident()
        self._calls_since: float | None = None  # when the loop of the calls was last seen to turn
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="grete-blocking", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch_calls(self, turns: int, again: float) -> tuple[int, float]:
        """Look whether an async function has kept the loop of the calls since ``turns``; return what to give next."""
        thread, reached = loop_of_calls()
        called = []
        if thread is not None and reached == turns:
            called = user_frames(sys._current_frames().get(thread), last=True)  # noqa: SLF001  # documented
        self._calls_since = (self._calls_since or time.time() - BLOCKS_S) if called else None
        self._reports.calls_are(_blocked(called, self._calls_since))
        if not called or (now := time.monotonic()) < again:
            return reached, again
        logger.warning("your code blocks", extra={"since_s": BLOCKS_S, "stack": _stack(called)})
        return reached, now + AGAIN_S

    def _watch(self) -> None:
        seen, since, again = self._progress(), time.monotonic(), 0.0
        turns, calls_again = -1, 0.0
        wait_s, due = BLOCKS_S, since + BLOCKS_S
        while not self._over.wait(wait_s):
            wait_s = SAMPLES_S if self._reports.sample() else BLOCKS_S
            if time.monotonic() < due:
                continue
            due = time.monotonic() + BLOCKS_S
            turns, calls_again = self._watch_calls(turns, calls_again)
            now, reached = time.monotonic(), self._progress()
            if reached[0] != seen[0]:
                seen, since = reached, now
                continue
            called = user_frames(sys._current_frames().get(self._watched))  # noqa: SLF001  # documented
            if reached != seen:
                seen, since = reached, now
                self._reports.send_within(str(_at(called[0])) if called else "", None, goes_on=True)
                continue
            self._reports.send_within("", _blocked(called, time.time() - (now - since)), goes_on=False)
            if now >= again and called:
                again = now + AGAIN_S
                fields = {"since_s": round(now - since, 1), "stack": _stack(called)}
                logger.warning("your code blocks", extra=fields)


def _at(frame: traceback.FrameSummary) -> CodeAt:
    return CodeAt(frame.filename, frame.lineno or 0, frame.name)


def _blocked(called: list[traceback.FrameSummary], since: float | None) -> Blocked | None:
    if not called or since is None:
        return None
    return Blocked(since_ms=int(since * 1_000), at=_at(called[0]), inner=_at(called[-1]))


def _stack(called: list[traceback.FrameSummary]) -> str:
    return "".join(traceback.format_list(called[-FRAMES_MAX:])).rstrip()


def user_frames(frame: FrameType | None, *, last: bool = False) -> list[traceback.FrameSummary]:
    """Return the frames from the first line outside of Grete that a task's execution has called; []: there is none.

    ``last``: from the last such line; those before it are of the library that makes a call's attempts.
    """
    frames = traceback.extract_stack(frame)
    begins = [
        index
        for index, (above, line) in enumerate(itertools.pairwise(frames), 1)
        if above.filename.startswith(_EXECUTION) and not user_traceback.in_grete(line.filename)
    ]
    return frames[begins[-1 if last else 0] :] if begins else []
