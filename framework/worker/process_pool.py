"""Starts worker processes, each in a session of its own; keeps one that has imported everything ready to go."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from framework.worker.process_main import Orders


class Started(NamedTuple):
    """A worker process and the end of the pipe that its statuses come out of; reading it never waits."""

    process: "subprocess.Popen[bytes]"
    pipe: int


class _Spare(NamedTuple):
    started: Started
    status_fd: int


class Spawner:
    """Starts processes by their orders, at most one of them ahead of its orders."""

    def __init__(self, *, fixed_hashes: bool = False) -> None:
        """``fixed_hashes``: texts are hashed alike in all of them, so that sets have one order (D3)."""
        self._spare: _Spare | None = None
        self._environment = {**os.environ, "PYTHONHASHSEED": "0"} if fixed_hashes else None

    def start(self, orders: Orders) -> Started:
        """Start a worker; ``status_fd`` of the orders is filled in here. The spare takes them, if there is one."""
        spare, self._spare = self._spare, None
        if spare is not None:
            stdin = spare.started.process.stdin
            assert stdin is not None
            try:
                stdin.write(_encoded(orders, spare.status_fd) + b"\n")
                stdin.close()
            except OSError:  # somebody has ended it
                _end(spare.started)
            else:
                return spare.started
        return self._started(orders).started

    def warm(self) -> None:
        """See to a spare. It costs about 0.4 s of computing and 50 MB: call this when nothing is in a hurry."""
        if self._spare is None:
            self._spare = self._started(None)

    def close(self) -> None:
        """End the spare."""
        if self._spare is not None:
            _end(self._spare.started)
            self._spare = None

    def _started(self, orders: Orders | None) -> _Spare:
        return _start(orders, self._environment)


def _start(orders: Orders | None, environment: dict[str, str] | None) -> _Spare:
    """Start a process with its orders, or without: a spare has nobody to talk to until it has them."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    arguments = [] if orders is None else [_encoded(orders, write_end).decode()]
    with Path(os.devnull if orders is None else orders.output).open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  # our own interpreter, and orders of the same user
            [sys.executable, "-m", "framework.worker.process_main", *arguments],
            stdin=subprocess.PIPE if orders is None else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[write_end],
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops them in order
        )
    os.close(write_end)
    return _Spare(Started(process, read_end), write_end)


def _encoded(orders: Orders, status_fd: int) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(orders, status_fd=status_fd))


def _end(started: Started) -> None:
    started.process.kill()
    started.process.wait()
    if started.process.stdin is not None:
        started.process.stdin.close()
    os.close(started.pipe)
