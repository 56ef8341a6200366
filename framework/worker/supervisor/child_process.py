"""A process that a supervisor has started, and the pipes to it. Nothing here ever waits, but for ``kill``."""

import os
import signal
from contextlib import suppress

from grete.worker.pipes.control_pipe import HostOrder, line_of
from grete.worker.pipes.status_pipe import StatusLines
from grete.worker.supervisor.process_pool import StartedProcess


class ChildProcess:
    """``reads`` says whether its pipe may still have something."""

    def __init__(self, started: StartedProcess) -> None:
        """Begin to read what the process writes."""
        self.started = started
        self.process = started.process
        self.pipe = started.pipe
        self.reads = True
        self._lines = StatusLines()
        self._orders = b""  # that the pipe to it has not taken yet

    @property
    def code(self) -> int | None:
        """Its exit code, None: it is there."""
        return self.process.poll()

    def lines(self) -> list[bytes]:
        """Return the lines that it has written by now, signs of life as empty ones."""
        if not self.reads:
            return []
        found = self._lines.read(self.pipe)
        self.reads = found is not None
        return found or []

    def order(self, order: HostOrder) -> None:
        """Tell it what it is to host, as soon as its pipe takes it."""
        self._orders += line_of(order)
        self.send_orders()

    def send_orders(self) -> None:
        """Write what it is still to be told, as much of it as the pipe takes."""
        if not self._orders or self.process.stdin is None:
            return
        with suppress(BlockingIOError, BrokenPipeError):  # it is busy, or has just ended: then its successor knows
            handle = self.process.stdin.fileno()
            os.set_blocking(handle, False)
            self._orders = self._orders[os.write(handle, self._orders) :]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        self.process.send_signal(number)

    def end_input(self) -> None:
        """Let it wait for no order and no spec any more."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def close(self) -> None:
        """Let go of the pipes of a process that has ended."""
        self.end_input()
        os.close(self.pipe)
