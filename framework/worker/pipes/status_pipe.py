"""The pipe between a worker and its supervisor: reports as lines of JSON, and empty lines as signs of life."""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from grete.errors import ConfigError, TransientError
from grete.protocol.errors import UnsupportedFormat
from grete.protocol.report import AnyReport, StandbyReport, WorkerReport, encode_report
from grete.settings import MiB

LINE_BYTES_MAX = 16 * MiB  # of a status that never ends; then it is dropped. Of a task it has some KiB
END_S = 300.0  # for which the end of a process waits for its supervisor: without its code it would be started again
R = TypeVar("R", WorkerReport, StandbyReport)
READ_BYTES_MAX = 1 * MiB  # at a look: other workers, and signals, have their turn


def has_reader(handle: int) -> bool:
    """Tell whether a process still has the other end of a pipe open."""
    poller = select.poll()
    poller.register(handle, 0)  # errors are reported in any case
    return not poller.poll(0)


class StatusPipe:
    """Writes to a supervisor's pipe, and never waits: a supervisor that is slow is no reason to.

    The statuses of many tasks are larger than a pipe, so a line goes out in parts; until its last part has gone, other
    statuses and signs of life are left out. Any thread may call.
    """

    def __init__(self, handle: int) -> None:
        """Take the end of a pipe that is to be written. Raises ConfigError: there is no such handle."""
        try:
            os.set_blocking(handle, False)
        except OSError as error:
            raise ConfigError(
                f"--status-fd {handle}: {error.strerror}: it is for supervisors only: leave it out"
            ) from error
        # Called when no process reads: the supervisor's successor needs to start this worker's one.
        self.gone: Callable[[], None] = lambda: None
        self._handle = handle
        self._rest = b""
        self._lock = threading.Lock()  # the loop reports, and so do the threads that watch it

    def report(self, report: AnyReport) -> None:
        """Write a line of JSON, as much of it as the pipe takes, unless an earlier one is still on its way."""
        self._write(encode_report(report) + b"\n")

    @property
    def is_read(self) -> bool:
        """Whether a process still has the other end open."""
        return has_reader(self._handle)

    def end(self, report: AnyReport) -> None:
        """Write the last report of the process, whole: wait for a supervisor that is slow, but not for ever.

        One that does not get it reads the log, as it does of a process that was killed.
        """
        poller, by_s = select.poll(), time.monotonic() + END_S
        poller.register(self._handle, select.POLLOUT)
        with self._lock, contextlib.suppress(BrokenPipeError):
            line, self._rest = self._rest + encode_report(report) + b"\n", b""
            while line and poller.poll(max(0.0, by_s - time.monotonic()) * 1_000):
                with contextlib.suppress(BlockingIOError):
                    line = line[os.write(self._handle, line) :]

    def show_life(self) -> None:
        """Tell, by an empty line, that the loop goes on, perhaps in a long batch."""
        self._write(b"\n", tells_gone=False)  # the loop will see it

    def go_on(self) -> None:
        """Write what is left of the line that is on its way."""
        if self._rest:
            self._write(b"")

    def _write(self, line: bytes, *, tells_gone: bool = True) -> None:
        try:
            with self._lock, contextlib.suppress(BlockingIOError):
                self._rest = self._rest or line
                while self._rest:
                    self._rest = self._rest[os.write(self._handle, self._rest) :]
        except BrokenPipeError:
            if tells_gone:
                self.gone()


def report_in(line: bytes, decode: Callable[[bytes], R | None], who: str) -> R | None:
    """Return the report of ``who`` in a line, None: there is none. Raises TransientError: it is of another build."""
    try:
        return decode(line)
    except UnsupportedFormat as error:
        raise TransientError(
            f"{who} reports what this process does not know ({error}): another Grete was installed while the job ran. "
            "Nothing is lost: start it again"
        ) from error


class StatusLines:
    """Lines from such a pipe, read without waiting."""

    def __init__(self) -> None:
        """Begin with a new pipe."""
        self._rest = b""

    def read(self, handle: int) -> list[bytes] | None:
        """Return the lines that are complete by now, signs of life as empty ones; None: no process writes any more."""
        try:
            data = os.read(handle, READ_BYTES_MAX)
        except BlockingIOError:
            return []
        if not data:
            return None
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) < LINE_BYTES_MAX else b""
        return lines
