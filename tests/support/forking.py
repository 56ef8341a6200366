"""Starts our Python programs by a fork: tests start hundreds of them, and most of a start is the imports.

While it is installed, ``subprocess.Popen([sys.executable, "-m", PROGRAM, …])``, with or without ``-P``, asks a fork
server: a process of one thread that has imported what the PROGRAMS import, and has opened nothing. What it forks is a
process with an id of its own and with the arguments, the environment, the directory, the files and the session that
were asked for. It is killed for real, and it ends as the interpreter ends, up to the last flush. Other programs, and
options that are not known here, start as ever.

A start by exec differs in five things: the parent is the test's process, ``/proc`` shows the program's command line, a
stack has no calls of the server below it, each process draws a seed for its hashes, and at the end the interpreter
drops its objects one by one, which takes a fork longer than all the rest: it would have to copy them first. Of the two
servers, one has PYTHONHASHSEED=0, and one a seed that it drew as it started. A test of one of these things asks for the
fixture ``started_by_exec``. Linux only.
"""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).parents[2]
PROGRAMS = ("grete.cli", "grete.worker.life.process_main", "tests.sinks.killed_worker")
# What they import as they start, and what that imports when it is first used: a command line, its options, its help.
IMPORTED = (
    "grete.logs.kafka",
    "typer._adapters",
    "typer.rich_utils",
    *(f"grete.cli.commands.{path.stem}" for path in sorted((ROOT / "framework/cli/commands").glob("[!_]*.py"))),
    *PROGRAMS[1:],
)
SEEDS = ("0", "random")  # values of PYTHONHASHSEED
MESSAGE_BYTES_MAX, FILES_MAX = 1 << 17, 64
SERVE = "import json, sys; from tests.support import forking; forking.serve(*json.loads(sys.argv[1]))"

_USUAL = (None, None, True, False, None, None, None, -1, -1)  # what no program of ours is started with
_READ_AT_START = ("PYTHON", "LC_", "LANG")  # variables that begin so are read as the interpreter starts
BY_EXEC = subprocess.Popen
_served: dict[str, "_Served"] = {}  # by seed
_starting: list[Callable[[], None]] = []  # what starts the servers, before the first program


class _Served(NamedTuple):
    """The address of a server, the environment that it was started with, and its session."""

    name: str
    environment: dict[str, str]
    session: int


class _Request(NamedTuple):
    """A request to start a program. ``targets``: the numbers of the sent files in the new process, in their order."""

    program: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    targets: list[int]
    group: int  # of processes; 0: a session of its own
    safe: bool  # by -P: nothing is imported from the directory
    bound: bool = False  # it is killed if who asked ends before it


# --- Who starts programs ---


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Fork PROGRAMS within the block. At its end, what is left of them is killed."""
    with contextlib.ExitStack() as servers:
        _starting.append(functools.partial(_start_servers, dict(os.environ), servers))
        subprocess.Popen = ForkingPopen  # type: ignore[misc]  # for all who start processes
        try:
            yield
        finally:
            subprocess.Popen = BY_EXEC  # type: ignore[misc]  # as it was
            _starting.clear()
            _served.clear()


def _start_servers(environment: dict[str, str], running: contextlib.ExitStack) -> None:
    alive_read, alive_write = os.pipe()  # the kernel closes its ends with this process, however that ends
    environment.pop("PYTHONPATH", None)
    listeners = {seed: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for seed in SEEDS}
    for seed, listener in listeners.items():
        listener.bind("")  # the kernel finds a name
        listener.listen(FILES_MAX)
        _served[seed] = _Served(listener.getsockname()[1:].decode(), environment, os.getsid(0))
    for seed, listener in listeners.items():
        process = BY_EXEC(
            [sys.executable, "-c", SERVE, json.dumps([listener.fileno(), alive_read, _served])],
            cwd=ROOT,
            env=environment | {"PYTHONHASHSEED": seed},
            pass_fds=[listener.fileno(), alive_read],
            stdin=subprocess.DEVNULL,
        )
        running.callback(process.wait)
        listener.close()
    os.close(alive_read)
    running.callback(os.close, alive_write)


class ForkingPopen(subprocess.Popen[Any]):
    """As it ever was, but for PROGRAMS. It is connected to the server as long as the process lives."""

    _server: socket.socket | None = None

    def _execute_child(self, *options: Any) -> None:
        args, executable, preexec_fn, close_fds, pass_fds, cwd, env, _, _, shell, *pipes = options[:16]
        _, gid, gids, uid, umask, new_session, group = options[16:]
        asked = (executable, preexec_fn, close_fds, shell, gid, gids, uid, umask, group)
        environment = dict(os.environ if env is None else env)
        directory = Path.cwd() / (cwd or "")
        if asked != _USUAL or not _is_known(args, environment, directory, new_session=new_session):
            super()._execute_child(*options)  # type: ignore[misc]  # private, and the only seam
            return
        stdin, _, _, stdout, _, stderr = pipes
        files = {0: stdin, 1: stdout, 2: stderr} | {number: number for number in pass_fds}
        group = 0 if new_session else os.getpgid(0)
        safe, (program, *arguments) = args[1] == "-P", args[args.index("-m") + 1 :]
        given = [os.fspath(arg) for arg in arguments]
        request = _Request(program, given, environment, str(directory), [*files], group, safe)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect("\0" + _served[_seed(environment)].name)
        sent = [target if number < 0 else number for target, number in files.items()]  # none given: as in this process
        socket.send_fds(self._server, [json.dumps(request).encode()], sent)
        self.pid = self._answer()
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # likewise

    def poll(self) -> int | None:
        """Return the exit code if the process has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._server is None:
            found: tuple[int, int] = super()._try_wait(flags)  # type: ignore[misc]  # likewise
            return found
        ended = select.poll()  # select has no files beyond 1,023
        ended.register(self._server, select.POLLIN)
        if flags & os.WNOHANG and not ended.poll(0):
            return 0, 0
        status = self._answer()
        self._server.close()  # now the server may release the process id
        self._server = None
        return self.pid, status

    def _answer(self) -> int:
        assert self._server is not None
        data = self._server.recv(MESSAGE_BYTES_MAX)
        assert data, "the fork server has ended"
        return int(data)


def _is_known(args: Any, environment: dict[str, str], directory: Path, *, new_session: bool) -> bool:
    """Whether a fork would do as a start by exec does."""
    if not isinstance(args, list):
        return False
    named = [arg for number, arg in enumerate(args[:4]) if (number, arg) != (1, "-P")][:3]
    if named[:2] != [sys.executable, "-m"] or named[2] not in PROGRAMS:
        return False
    while _starting:
        _starting.pop()()
    served = _served.get(_seed(environment))
    if served is None:
        return False
    same = _at_start(environment) == _at_start(served.environment)
    return same and directory.is_dir() and (new_session or os.getsid(0) == served.session)


def server_for(environment: dict[str, str], directory: Path) -> str | None:
    """Return the name of the server that forks PROGRAMS for a shell, if a fork would do as a start by exec does."""
    known = _is_known([sys.executable, "-m", PROGRAMS[0]], environment, directory, new_session=False)
    return _served[_seed(environment)].name if known else None


def _seed(environment: dict[str, str]) -> str:
    return environment.get("PYTHONHASHSEED") or "random"


def _at_start(environment: dict[str, str]) -> dict[str, str]:
    apart = ("PYTHONPATH", "PYTHONHASHSEED")
    return {name: text for name, text in environment.items() if name.startswith(_READ_AT_START) and name not in apart}


# --- The server ---


def serve(listener: int, alive: int, served: dict[str, list[Any]]) -> None:
    """Fork on request until the other end of ``alive`` is closed. A forked process runs its program and returns."""
    _served.update((seed, _Served(*values)) for seed, values in served.items())
    subprocess.Popen = ForkingPopen  # type: ignore[misc]  # what is forked starts workers
    for name in IMPORTED:
        importlib.import_module(name)
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a fork has no threads but one"
    gc.collect()
    gc.freeze()
    with _Server(socket.socket(fileno=listener), alive) as server:
        request, files = server.until_forked()
    _be(request, files)


class _Server:
    """The processes that it has forked, each with the connection of its starter: None if that is closed."""

    def __init__(self, listener: socket.socket, alive: int) -> None:
        self._listener, self._alive = listener, alive
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        self._at_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._asking: list[socket.socket] = []
        self._forked: dict[int, socket.socket | None] = {}
        self._told: set[int] = set()  # processes of whose end the starter knows: their ids are still taken
        self._bound: set[int] = set()  # processes that end with their starters

    def until_forked(self) -> tuple[_Request, list[int]]:
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
                request = _Request(*json.loads(data))
                if (pid := os.fork()) == 0:
                    return request, files
                self._forked[pid] = connection
                if request.bound:
                    self._bound.add(pid)
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
        for pid in self._forked:  # not reaped: no other process has their ids
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Forget the server in a process that it forked, whose files are closed by their numbers."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, self._at_interrupt)
        for connection in (self._listener, *self._asking, *filter(None, self._forked.values())):
            connection.detach()


def _be(request: _Request, files: list[int]) -> None:
    """Become the program: what a start by exec gives it, then its code as ``__main__``."""
    opened = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    above = max(*opened, *request.targets) + 1
    high = [os.dup2(file, above + number) for number, file in enumerate(files)]
    os.closerange(0, above)
    for target, file in zip(request.targets, high, strict=True):
        os.dup2(file, target)
        os.close(file)
    if request.group == 0:
        os.setsid()
    elif request.group != os.getpgid(0):
        os.setpgid(0, request.group)
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
