"""The notifier: wakes the processes that wait for a commit of another one, without burning a core.

Where the kernel can watch files (Linux's inotify) waiters sleep until somebody rings: 0.1 ms to wake, next to nothing
when idle. A look every 2 ms instead cost 3 % of a core for each idle process where a timer interrupt is dear (a virtual
machine); it remains for systems without inotify or without a free inotify instance.
"""

import contextlib
import ctypes
import os
import select
import time
from pathlib import Path

IN_MODIFY = 0x2  # of inotify(7)
RECHECK_S = 0.1  # a writer killed between commit and ring, or a foreign program: seen this late
PAUSE_MIN_S, PAUSE_MAX_S = 0.0002, 0.002  # without inotify: a busy log answers at once, an idle one costs little


class Notifier:
    """One process's end of the notifier. The file only carries the wake-up; its content means nothing."""

    def __init__(self, path: Path) -> None:
        """Open or make the file, mode 0600. Raises OSError."""
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._events = _watch(path)
        self._pause_s = PAUSE_MIN_S
        self._poll = select.poll()
        if self._events is not None:
            self._poll.register(self._events, select.POLLIN)

    def ring(self) -> None:
        """Wake all who sleep. Never fails: what it announces is committed, and waiters look again after RECHECK_S."""
        with contextlib.suppress(OSError):
            os.pwrite(self._file, b"!", 0)

    def reset(self) -> None:
        """Forget earlier rings; the caller looks at the log between this and its sleep, so that no ring is lost."""
        self._pause_s = PAUSE_MIN_S
        if self._events is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self._events, 4096)  # rings in a row are one event: the kernel's queue stays short

    def sleep(self, seconds: float) -> None:
        """Sleep until somebody rings, for at most ``seconds``; it may be shorter."""
        if self._events is not None:
            self._poll.poll(min(seconds, RECHECK_S) * 1000)
            with contextlib.suppress(BlockingIOError):
                os.read(self._events, 4096)
        else:
            time.sleep(min(seconds, self._pause_s))
            self._pause_s = min(self._pause_s * 1.25, PAUSE_MAX_S)

    def close(self) -> None:
        """Close the files."""
        os.close(self._file)
        if self._events is not None:
            os.close(self._events)


def _watch(path: Path) -> int | None:
    """Return a descriptor that becomes readable when the file is written to, or None where that is not to be had."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        return None
    events: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if events < 0:
        return None
    if libc.inotify_add_watch(events, os.fsencode(path), IN_MODIFY) < 0:
        os.close(events)
        return None
    return events
