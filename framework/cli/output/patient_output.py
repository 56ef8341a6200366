"""Standard output and standard error of a command that must go on, whether or not somebody takes what it writes.

A pipe without a reader, a terminal that was stopped (Ctrl-S) or a full disk would stop a process that writes there:
workers would not be started again, and SIGTERM would not be looked at. A thread writes; what is not taken is left out.
"""

import io
import os
import sys
import threading
import time
from collections import deque
from typing import Any, TextIO

from grete.errors import ExitCode

BYTES_MAX = 1 << 20  # that wait to be written; a pipe takes 64 KiB, and a page of news has 4
LEAVES_S_MAX = 2.0  # for what still waits at the end of the command
AGAIN_S = 0.5  # after an error: a disk may have room again
FULL_S = 0.05  # a pipe that somebody else has made non-blocking


class PatientOutput(io.RawIOBase):
    """Writing to it never waits and never fails. It is never closed: its thread ends with the process."""

    def __init__(self, handle: int) -> None:
        """``handle``: the file that gets what is written; a copy of it is kept, which nothing else closes or takes."""
        self._handle = os.dup(handle)
        self._waiting: deque[bytes] = deque()
        self._bytes = self._missing = 0  # waiting; lines that were left out since the last note
        self._busy = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="grete-output", daemon=True).start()

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether the file is a terminal."""
        return os.isatty(self._handle)

    def fileno(self) -> int:
        """Return the file, which knows the size of its window."""
        return self._handle

    def write(self, data: Any, /) -> int:
        """Take bytes, or leave them out if too much waits."""
        taken = bytes(data)
        with self._changed:
            if self._bytes + len(taken) > BYTES_MAX:
                self._missing += _lines(taken)
            else:
                self._waiting.append(taken)
                self._bytes += len(taken)
            self._changed.notify_all()
        return len(taken)

    def settle(self) -> None:
        """Wait until all is written, but not for ever."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._busy), LEAVES_S_MAX)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                data, missing = b"".join(self._waiting), self._missing
                self._waiting.clear()
                self._busy, self._bytes, self._missing = True, 0, 0
            note = f"({missing:,} lines are missing here: they were not taken)\n".encode() if missing else b""
            if not self._written(data + note):
                with self._changed:
                    self._missing += missing + _lines(data)
                time.sleep(AGAIN_S)

    def _written(self, data: bytes) -> bool:
        """Write all, for as long as that takes; return whether it was taken."""
        while data:
            try:
                data = data[os.write(self._handle, data) :]
            except BlockingIOError:
                time.sleep(FULL_S)
            except OSError:
                return False
        return True


def _lines(data: bytes) -> int:
    return max(1, data.count(b"\n"))


_made: dict[tuple[int, int], tuple[PatientOutput, TextIO]] = {}  # by device and inode: each file has one thread


def standard_output() -> TextIO:
    """Return the stream to which a long command prints."""
    return _patient(sys.stdout)


def standard_error() -> TextIO:
    """Return the same for errors."""
    return _patient(sys.stderr)


def settle() -> None:
    """Wait a moment for what was written: the command ends."""
    for output, _ in _made.values():
        output.settle()


def end_unanswered() -> None:
    """End the command at once: it has written all, and does not wait for the answer of a log that is away."""
    from grete.worker.life.lifetime import end_at_once

    settle()
    end_at_once(ExitCode.DONE)


def _patient(stream: TextIO) -> TextIO:
    """Return the writer of a stream's file; the stream itself if it has none, as in a test."""
    try:
        handle = stream.fileno()
        found = os.fstat(handle)
    except (OSError, AttributeError):
        return stream
    if (place := (found.st_dev, found.st_ino)) not in _made:
        output = PatientOutput(handle)
        text = io.TextIOWrapper(output, stream.encoding or "utf-8", "replace", write_through=True)  # type: ignore[type-var]  # typeshed asks for a buffer that also reads
        _made[place] = output, text
    return _made[place][1]
