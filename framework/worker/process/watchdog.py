"""Ends a worker whose loop does not turn any more, with the stacks of all threads in its log.

C code may hold the interpreter, and then no Python thread runs: so faulthandler ends the process, from a thread of C.
A Python thread puts that off for as long as the loop goes on.
"""

import contextlib
import faulthandler
import threading
from collections.abc import Callable, Iterator
from typing import Self

from grete.worker.pipes.signal_pipe import SignalPipe

LOOKS = 8  # at the loop within its bound: a worker may hang for an eighth longer
STOP_MARGIN_S = 1.0  # a loop that turns ends by itself, with a line of its own; a supervisor kills after two
STDERR = 2  # takes the stacks


@contextlib.contextmanager
def exits_after(seconds: float) -> Iterator[None]:
    """End the process, with the stacks of all threads, if the block takes longer: a worker imports a user's code."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class Watchdog:
    """Watches the loop of this process from its main thread, until the end of a ``with`` block."""

    def __init__(
        self, silent_s: float, stop_s: float, progress: Callable[[], object], show_life: Callable[[], None]
    ) -> None:
        """End the process when ``progress`` is the same for ``silent_s`` s, or ``stop_s`` s after it was to stop.

        ``show_life`` is called some times within ``silent_s`` while there is progress. A thread calls both.
        """
        self._silent_s, self._stop_s = silent_s, stop_s + STOP_MARGIN_S
        self._progress, self._show_life = progress, show_life
        self._pipe = SignalPipe()
        self._thread = threading.Thread(target=self._watch, name="grete-watchdog", daemon=True)

    def stop(self) -> None:
        """The process is to stop. SIGTERM and SIGINT say so themselves, even while C code keeps handlers waiting."""
        self._pipe.stop()

    def __enter__(self) -> Self:
        self._pipe.__enter__()
        self._put_off()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the process go on, or end, in its own time."""
        self._pipe.__exit__()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        seen: object = None
        while True:
            asked = self._pipe.asked(self._silent_s / LOOKS)
            if asked is None:
                return
            if asked:
                faulthandler.dump_traceback_later(self._stop_s, exit=True, file=STDERR)
                return
            if (now := self._progress()) != seen:
                seen = now
                self._put_off()
                self._show_life()

    def _put_off(self) -> None:
        faulthandler.dump_traceback_later(self._silent_s, exit=True, file=STDERR)
