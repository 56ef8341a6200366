"""The server of ``forking.py``: it has imported our programs, forks on request, and tells of ends."""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import typer.main

from grete.cli.main import app
from tests.support.forking import (
    FILES_MAX,
    MESSAGE_BYTES_MAX,
    OWN_GROUP,
    OWN_SESSION,
    ROOT,
    ForkingPopen,
    Request,
    Served,
    enter,
    forget,
    served_by_seed,
)

# What they import as they start, and what that imports when it is first used: a command line, its options, its help.
IMPORTED = (
    "configparser",
    "fsspec.implementations.local",
    "grete.logs.kafka",
    "pydantic.plugin._loader",
    "rich._emoji_codes",
    "rich.status",
    "typer._adapters",
    "typer._click.decorators",
    "typer.rich_utils",
    *(f"grete.cli.commands.{path.stem}" for path in sorted((ROOT / "framework/cli/commands").glob("[!_]*.py"))),
    "grete.worker.life.process_main",
    "tests.sinks.killed_worker",
)


def serve(listener: int, alive: int, served: dict[str, list[Any]]) -> None:
    """Fork on request until the other end of ``alive`` is closed. A forked process runs its program and returns."""
    served_by_seed.update((seed, Served(*values)) for seed, values in served.items())
    subprocess.Popen = ForkingPopen  # type: ignore[misc]  # what is forked starts workers
    for name in IMPORTED:
        importlib.import_module(name)
    _make_commands()
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a fork has no threads but one"
    gc.collect()
    gc.freeze()
    with _Server(socket.socket(fileno=listener), alive) as server:
        request, files = server.until_forked()
    _be(request, files)


def _make_commands() -> None:
    """Make the commands and what reads their options: a quarter of what it takes to refuse arguments."""
    typer.main.get_command = functools.cache(typer.main.get_command)
    commands: list[Any] = [typer.main.get_command(app)]
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        for parameter in command.params:
            parameter.get_runtime_param()


class _Server:
    """The processes that it has forked, each with the connection of its starter: None if that is closed."""

    def __init__(self, listener: socket.socket, alive: int) -> None:
        self._listener, self._alive = listener, alive
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._asking: list[socket.socket] = []
        self._forked: dict[int, socket.socket | None] = {}
        self._told: set[int] = set()  # processes of whose end the starter knows: their ids are still taken
        self._bound: set[int] = set()  # processes that end with their starters

    def until_forked(self) -> tuple[Request, list[int]]:
        """Serve. Return in a new process, with what it shall be; the server itself exits in here."""
        while True:
            starters = {connection: pid for pid, connection in self._forked.items() if connection is not None}
            watched: list[int | socket.socket] = [self._listener, self._alive, self._wake, *self._asking, *starters]
            ready, _, _ = select.select(watched, [], [])
            if self._alive in ready:
                self._end()
            if self._wake in ready:
                os.read(self._wake, FILES_MAX)
            for connection in starters.keys() & {*ready}:
                connection.close()  # it never says anything more
                self._forked[pid := starters[connection]] = None
                if pid in self._bound - self._told:
                    os.kill(pid, signal.SIGKILL)
                self._bound.discard(pid)
            self._look_for_ends()
            for connection in [connection for connection in self._asking if connection in ready]:
                self._asking.remove(connection)
                data, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, FILES_MAX)
                if not data:
                    connection.close()
                    continue
                request = Request(*json.loads(data))
                if (pid := os.fork()) == 0:
                    return request, files
                self._forked[pid] = connection
                if request.bound:
                    self._bound.add(pid)
                with contextlib.suppress(BrokenPipeError):  # its starter was killed meanwhile: it sees its closed pipes
                    connection.send(b"%d" % pid)
                for file in files:
                    os.close(file)
            if self._listener in ready:
                self._asking.append(self._listener.accept()[0])

    def _look_for_ends(self) -> None:
        for pid, connection in [*self._forked.items()]:
            if connection is None:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self._forked[pid]
                    self._told.discard(pid)
            elif pid not in self._told:
                found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is not None:
                    self._told.add(pid)
                    exited = found.si_code == os.CLD_EXITED
                    with contextlib.suppress(BrokenPipeError):  # the starter has just ended
                        connection.send(b"%d" % (found.si_status << 8 if exited else found.si_status))

    def _end(self) -> None:
        forget(self._listener)
        for pid in self._forked:  # not reaped: no other process has their ids
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Forget the server in a process that it forked, whose files are closed by their numbers."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for connection in (self._listener, *self._asking, *filter(None, self._forked.values())):
            connection.detach()


def _be(request: Request, files: list[int]) -> None:
    """Become the program: what a start by exec gives it, then its code as ``__main__``."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in request.ignored else signal.SIG_DFL)
    if signal.SIGINT not in request.ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if request.group == OWN_SESSION:
        os.setsid()
    elif request.group == OWN_GROUP:
        os.setpgid(0, 0)
    elif request.group != os.getpgid(0):
        os.setpgid(0, request.group)
    if request.enters:
        *files, namespace, entered = files
        enter(namespace)
        os.close(entered)
    opened = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    above = max(*opened, *request.targets) + 1
    high = [os.dup2(file, above + number) for number, file in enumerate(files)]
    os.closerange(0, above)
    for target, file in zip(request.targets, high, strict=True):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    given = filter(None, request.environment.get("PYTHONPATH", "").split(os.pathsep))
    first = [] if request.safe else [str(Path.cwd())]
    sys.path[:] = [*first, *(str(Path(path).absolute()) for path in given), *sys.path[1:]]
    for name in [*sys.modules]:
        if name.partition(".")[0] == "tests" or (
            name == request.program and not hasattr(sys.modules[name], "__path__")
        ):
            del sys.modules[name]  # of the server, or what is now __main__
    sys.argv[1:] = request.arguments
    try:
        runpy.run_module(request.program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise  # a text: the interpreter prints it
        _end(end.code or 0)
    _end(0)


def _end(code: int) -> None:
    """End as the interpreter does, but for its objects: nothing of ours waits for one to be dropped."""
    threading._shutdown()  # type: ignore[attr-defined]  # private: what the interpreter itself calls
    atexit._run_exitfuncs()
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the interpreter says what it cannot write
    os._exit(code & 0xFF)
