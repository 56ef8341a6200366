"""The signals of a command that runs until it is stopped: Ctrl-C, SIGTERM, SIGHUP, and those that ask for workers."""

import faulthandler
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from grete.errors import LogAway
from grete.worker.pipes.signal_pipe import SignalPipe, on_stop
from grete.worker.process.watchdog import STDERR

UNANSWERED = "stopped before the log had answered: nothing was begun"


class StopSignal:
    """Set by the first signal that asks to stop, for a graceful end; a second Ctrl-C raises KeyboardInterrupt."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        """``then`` is called when the end is asked for."""
        self.asked = False
        self._then = then
        on_stop(self._on_signal)

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

    def excuses(self) -> "_Excuses":
        """Take a log that did not answer for no error, within a block, once the end was asked for."""
        return _Excuses(self)


class ShareSignals:
    """SIGUSR1 asks for a worker more, SIGUSR2 for one less."""

    def __init__(self) -> None:
        """Take them from now on."""
        self._more = 0
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._on_signal)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self._more += 1 if signum == signal.SIGUSR1 else -1

    def taken(self) -> int:
        """Return the number of workers that were asked for since the last look, beyond those that there are."""
        more, self._more = self._more, 0
        return more


class _Excuses:
    """A block that may end early; a function's generator would not tell so to who checks types."""

    def __init__(self, stop: StopSignal) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """Return whether the block has ended well in spite of the error."""
        return self._stop.asked and isinstance(error, LogAway)


def _end_after(pipe: SignalPipe, seconds: float) -> None:
    """End the process so long after a signal."""
    while not (asked := pipe.asked()):
        if asked is None:
            return
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)
