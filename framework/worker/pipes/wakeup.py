"""Waits for pipes, and for other threads that end the wait."""

import os
import selectors
import threading
from contextlib import suppress
from typing import Any


class WakeableSelector:
    """The selector of one loop; ``wake`` may be called by any thread and by signal handlers, also after ``close``."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._selector.register(self._reader, selectors.EVENT_READ)
        self._lock = threading.RLock()  # no write to a handle that was closed, and is another file by now
        self._closed = False

    def register(self, handle: int, whose: object) -> None:
        """Wait for this handle, too."""
        self._selector.register(handle, selectors.EVENT_READ, whose)

    def unregister(self, handle: int) -> None:
        """Wait for this handle no more."""
        self._selector.unregister(handle)

    def ready(self, timeout_s: float) -> list[Any]:
        """Return whose handles can be read, after ``timeout_s`` or a ``wake`` at the latest."""
        found = [key.data for key, _ in self._selector.select(timeout_s)]
        if None in found:
            os.read(self._reader, 4_096)
        return [whose for whose in found if whose is not None]

    def wake(self) -> None:
        """End the wait that is under way, or the next one."""
        with self._lock, suppress(BlockingIOError):  # it is full of calls already
            if not self._closed:
                os.write(self._writer, b"!")

    def close(self) -> None:
        """Let go of all but what was registered."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._selector.close()
                os.close(self._reader)
                os.close(self._writer)
