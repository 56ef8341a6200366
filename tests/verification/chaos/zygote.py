"""Starts workers in milliseconds: a process that has imported everything and forks before any log or store is opened.

What it forks is a real worker with a process id of its own: ``grete.cli.commands.worker.worker`` as ``grete worker``
calls it, without the half second of imports. It is killed for real. Linux only (pidfd).
"""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[3]
MESSAGE_BYTES_MAX = 1 << 16


class Child:
    """A process that the zygote forked. Signals go through a pidfd: never to a stranger who got its number."""

    def __init__(self, pid: int, handle: int) -> None:
        """Take over ``handle``, the pidfd that the zygote opened: by now the child may have died and been reaped."""
        self.pid = pid
        self.code: int | None = None  # as subprocess has it: -9 is SIGKILL
        self._handle = handle

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; to the dead, nothing."""
        try:
            signal.pidfd_send_signal(self._handle, number)
        except ProcessLookupError:
            return

    def freeze(self) -> None:
        """Stop it by SIGSTOP, and return when it has stopped: a system call that is under way is finished first."""
        self.signal(signal.SIGSTOP)
        while self.code is None and self.state() not in "TZ":
            time.sleep(0.001)

    def state(self) -> str:
        """Return the letter that the kernel has for its state: T is stopped, Z dead."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return "Z"

    def forget(self) -> None:
        """Release the handle."""
        os.close(self._handle)


class Zygote:
    """The parent's side."""

    def __init__(self, preload: str) -> None:
        """Start it; ``preload`` is imported beside the worker: the module of the job."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._children: dict[int, Child] = {}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.verification.chaos.zygote", str(theirs.fileno()), preload],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a signal to our group leaves it: it must outlive us, to end what it has forked
        )
        theirs.close()

    def fork(self, request: dict[str, Any], log: int, status: int) -> Child:
        """Start a worker with these keyword arguments of ``run``; ``log`` and ``status`` are files of this process."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], [log, status])
        while True:
            answer, handles = self._receive()
            if "code" not in answer:
                child = self._children[answer["pid"]] = Child(answer["pid"], handles[0])
                return child

    def poll(self) -> None:
        """Take what the zygote knows of ends."""
        while select.select([self._socket], [], [], 0)[0]:
            self._receive()

    def wait(self, child: Child, timeout_s: float = 30.0) -> int:
        """Wait for the end of a child; return its code. Raises TimeoutError."""
        while child.code is None:
            if not select.select([self._socket], [], [], timeout_s)[0]:
                raise TimeoutError(f"process {child.pid} does not end")
            self._receive()
        return child.code

    def _receive(self) -> tuple[dict[str, int], list[int]]:
        data, handles, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES_MAX, 1)
        if not data:
            raise RuntimeError("the zygote has ended")
        answer: dict[str, int] = json.loads(data)
        if "code" in answer:
            self._children.pop(answer["pid"]).code = answer["code"]
        return answer, handles

    def close(self) -> None:
        """End it and all that it forked."""
        self._socket.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def serve(channel: socket.socket) -> None:
    """Fork on request, report ends; when the parent is gone, kill what is left."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    living: set[int] = set()
    gc.collect()
    gc.freeze()
    while True:
        ready, _, _ = select.select([channel.fileno(), wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            _reap(channel, living)
        if channel.fileno() in ready:
            data, handles, _, _ = socket.recv_fds(channel, MESSAGE_BYTES_MAX, 2)
            if not data:
                break
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for handle in (channel.fileno(), wake_read, wake_write):
                    os.close(handle)
                _be_worker(json.loads(data), *handles)
            living.add(pid)
            for handle in handles:
                os.close(handle)
            child = os.pidfd_open(pid)  # before it is reaped: from then on its number can be a stranger's
            socket.send_fds(channel, [json.dumps({"pid": pid}).encode()], [child])
            os.close(child)
    for pid in living:  # they are children of this process, and not yet reaped: no other process has their number
        os.kill(pid, signal.SIGKILL)


def _reap(channel: socket.socket, living: set[int]) -> None:
    for pid in list(living):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            living.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            try:
                channel.send(json.dumps({"pid": pid, "code": code}).encode())
            except BrokenPipeError:
                return


def _be_worker(request: dict[str, Any], log: int, status: int) -> None:
    code = 1
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        from tests.verification.chaos.worker import run

        code = run(status_fd=status, **request)
    except BaseException:  # noqa: BLE001  # a fork must never go on as the zygote
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    import importlib

    importlib.import_module("tests.verification.chaos.worker")
    importlib.import_module(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
