"""An object that a test drops is closed as the end of a process would close it, in the thread that has opened it.

Python looks for garbage in any thread, and a connection to SQLite can be closed only in its own.
"""

import threading
import weakref
from collections.abc import Callable

_late: list[Callable[[], object]] = []  # to be closed, and dropped in a thread that could not


def when_dropped(owner: object, close: Callable[[], object]) -> None:
    """Close when ``owner`` is dropped, or when the test ends in which another thread has dropped it."""
    weakref.finalize(owner, _close, close, threading.get_ident())


def close_late() -> None:
    """Close what another thread has dropped."""
    while _late:
        _late.pop()()


def _close(close: Callable[[], object], thread: int) -> None:
    if threading.get_ident() == thread:
        close()
    else:
        _late.append(close)
