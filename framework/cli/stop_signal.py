"""Ctrl-C and SIGTERM of a command that runs until it is stopped."""

import faulthandler
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from framework.errors import LogAway
from framework.worker.signal_pipe import SignalPipe
from framework.worker.watchdog import STDERR


class StopSignal:
    """Set by the first Ctrl-C or SIGTERM, for a graceful end; the second Ctrl-C raises KeyboardInterrupt at once."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        """``then`` is called when the end is asked for."""
        self.asked = False
        self._then = then
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        if self.asked and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True
        self._then()

    @contextmanager
    def ends_within(self, seconds: float) -> Iterator[None]:
        """End the process, with its stacks, if the block goes on for so long after the signal: a serde may hang."""
        pipe = SignalPipe()
        thread = threading.Thread(target=_end_after, args=(pipe, seconds), name="grete-stop", daemon=True)
        try:
            with pipe:
                thread.start()
                yield
        finally:
            thread.join()
            faulthandler.cancel_dump_traceback_later()

    @contextmanager
    def excuses(self) -> Iterator[None]:
        """Take a log that did not answer for no error once the end was asked for."""
        try:
            yield
        except LogAway:
            if not self.asked:
                raise


def _end_after(pipe: SignalPipe, seconds: float) -> None:
    """End the process so long after a signal."""
    while not (asked := pipe.asked()):
        if asked is None:
            return
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)
