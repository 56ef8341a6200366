"""Starts worker processes, each in a session of its own; keeps one that has imported everything ready to go."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from grete import python_start
from grete.worker.life.process_main import WorkerSpec


class StartedProcess(NamedTuple):
    """A worker process and the end of the pipe that its statuses come out of; reading it never waits.

    ``status_fd``: the other end, as the process knows it.
    """

    process: "subprocess.Popen[bytes]"
    pipe: int
    status_fd: int


class ProcessPool:
    """Starts processes by their spec, at most one of them ahead of its spec."""

    def __init__(self, *, fixed_hashes: bool = False) -> None:
        """``fixed_hashes``: texts are hashed alike in all of them, so that sets have one order (D3)."""
        self._prewarmed: StartedProcess | None = None
        self._kept: list[StartedProcess] = []
        self._environment = python_start.environment() | ({"PYTHONHASHSEED": "0"} if fixed_hashes else {})

    def start(self, spec: WorkerSpec) -> StartedProcess:
        """Start a worker: one that was kept, or the prewarmed one, or another process.

        ``status_fd`` of the spec is filled in here.
        """
        if self._kept:
            ready: StartedProcess | None = self._kept.pop()
        else:
            ready, self._prewarmed = self._prewarmed, None
        if ready is not None:
            stdin = ready.process.stdin
            assert stdin is not None
            try:
                stdin.write(_encoded(spec, ready.status_fd) + b"\n")
            except OSError:  # somebody has ended it
                _end(ready)
            else:
                return ready
        return _start(spec, self._environment)

    @property
    def warmed(self) -> bool:
        """Whether a prewarmed worker waits."""
        return self._prewarmed is not None

    def warm(self) -> None:
        """See to a prewarmed worker. It costs about 0.4 s of computing and 50 MB.

        Call this when nothing is in a hurry.
        """
        if not self.warmed:
            self._prewarmed = _start(None, self._environment)

    def keep(self, started: StartedProcess) -> None:
        """Take a process that hosts nothing any more and waits for a spec, until ``end_kept``."""
        self._kept.append(started)

    def end_kept(self) -> None:
        """End those that are not started as a worker."""
        while self._kept:
            _end(self._kept.pop())

    def close(self) -> None:
        """End those that wait."""
        self.end_kept()
        if self._prewarmed is not None:
            _end(self._prewarmed)
            self._prewarmed = None


def _start(spec: WorkerSpec | None, environment: dict[str, str]) -> StartedProcess:
    """Start a process with its spec, or without: a prewarmed worker waits for it."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    arguments = [] if spec is None else [spec.job, str(spec.number)]  # for people: who lists processes sees no secret
    with Path(os.devnull if spec is None else spec.output).open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  # our own interpreter, and a spec of the same user
            python_start.python("grete.worker.life.process_main", *arguments),
            bufsize=0,
            stdin=subprocess.PIPE,  # for its spec, if it has none yet, and for orders
            stdout=output,
            stderr=output,
            pass_fds=[write_end],
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops them in order
        )
    os.close(write_end)
    if spec is not None and process.stdin is not None:
        with suppress(OSError):  # it has ended already, which its supervisor sees
            process.stdin.write(_encoded(spec, write_end) + b"\n")
    return StartedProcess(process, read_end, write_end)


def _encoded(spec: WorkerSpec, status_fd: int) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(spec, status_fd=status_fd))


def _end(started: StartedProcess) -> None:
    started.process.kill()
    started.process.wait()
    if started.process.stdin is not None:
        started.process.stdin.close()
    os.close(started.pipe)
