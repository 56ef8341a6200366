"""The file that takes what a worker process writes: it is rotated by the worker, and followed by its supervisor."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from grete.settings import MiB

BYTES_MAX = 16 * MiB  # of the file; its predecessor is kept beside it, as NAME.1
READ_BYTES_MAX = 1 * MiB  # at a look: what is printed faster is shown later, or is in the files only
LINE_BYTES_MAX = 8 * 1024  # a line that never ends is shown in pieces
LOG_LINE = b'{"level": "'  # how the lines begin that the worker logs


class OutputFile:
    """Takes standard output and standard error of this process, or other ``handles``."""

    def __init__(self, path: Path, handles: Sequence[int] = (1, 2), bytes_max: int = BYTES_MAX) -> None:
        self._path, self._handles, self._bytes_max = path, handles, bytes_max
        self._open()

    def rotate(self) -> None:
        """Begin a new file if this one is large; in between, nothing that is written is lost."""
        if os.fstat(self._handles[0]).st_size > self._bytes_max:
            self._path.replace(f"{self._path}.1")
            self._open()

    def _open(self) -> None:
        output = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        for handle in self._handles:
            os.dup2(output, handle)
        os.close(output)


class _NeverFails(io.FileIO):
    """Leaves out what a full disk refuses: else a print of user code would be an error of its record."""

    def write(self, data: Any, /) -> int:
        """Write bytes, or nothing."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def printed_to(handle: int) -> TextIO:
    """Return the writer of the text that is printed to a handle, line by line; it never fails."""
    raw = io.BufferedWriter(_NeverFails(handle, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=True, write_through=True)


class Follower:
    """Reads what is written to an output file from now on, over rotations, but for log lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.lseek(self._handle, 0, os.SEEK_END)
        self._rest = b""

    def printed(self) -> list[str]:
        """Return the lines that user code, or a library, has written since the last look."""
        rotated = self._path.stat().st_ino != os.fstat(self._handle).st_ino
        data = os.read(self._handle, READ_BYTES_MAX)
        if rotated and len(data) < READ_BYTES_MAX:  # that was the rest of it
            os.close(self._handle)
            self._handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            data += os.read(self._handle, READ_BYTES_MAX)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest], b""
        return [line.decode("utf-8", "replace") for line in lines if line and not line.startswith(LOG_LINE)]

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)
