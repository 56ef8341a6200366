"""Reports the signals that ask a process to stop through a pipe, also while Python runs no signal handler.

C code may keep handlers waiting, and so may a sleep: a signal that comes just before it begins does not end it.
"""

import os
import select
import signal
from collections.abc import Callable
from types import FrameType
from typing import Self

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # of a service manager, Ctrl-C, a terminal that is closed
_STOP, _CLOSE = bytes([signal.SIGTERM]), b"\0"


def on_stop(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    """Call a handler when the process is asked to stop. A closed terminal is none of its business under nohup."""
    for number in STOPS:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


class SignalPipe:
    """Takes the signals within a ``with`` block of the main thread. The pipe stays: a signal may still come."""

    def __init__(self) -> None:
        """Take nothing yet."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._told = select.poll()  # select() takes no file above 1,023, and a worker of many tasks has more
        self._told.register(self._reader, select.POLLIN)

    def stop(self) -> None:
        """Tell the thread what SIGTERM would."""
        os.write(self._writer, _STOP)

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=_forget)  # what a child is told is not for us
        return self

    def __exit__(self, *_: object) -> None:
        """Take no more, and tell the thread that it is over."""
        signal.set_wakeup_fd(-1)
        os.write(self._writer, _CLOSE)

    def asked(self, seconds: float | None = None) -> bool | None:
        """Return whether the process was asked to stop within ``seconds`` (None: however long); None: it is over."""
        told = self._told.poll(None if seconds is None else 1000 * seconds)
        signals = os.read(self._reader, 1024) if told else b""
        if _CLOSE in signals:
            return None
        return any(number in signals for number in STOPS)


def _forget() -> None:
    signal.set_wakeup_fd(-1)
