"""Starts our Python programs by a fork: tests start hundreds of them, and most of a start is the imports.

While it is installed, ``subprocess.Popen([sys.executable, "-m", PROGRAM, …])``, with or without ``-P``, asks a fork
server: a process of one thread that has imported what the PROGRAMS import, and has opened nothing. What it forks is a
process with an id of its own and with the arguments, the environment, the directory, the files and the session that
were asked for, and it is where it was asked for: in a network namespace, too. It is killed for real, and it ends as the
interpreter ends, up to the last flush. Other programs, and options that are not known here, start as ever.

A start by exec differs in five things: the parent is the test's process, ``/proc`` shows the program's command line, a
stack has no calls of the server below it, each process draws a seed for its hashes, and at the end the interpreter
drops its objects one by one, which takes a fork longer than all the rest: it would have to copy them first. Of the two
servers, one has PYTHONHASHSEED=0, and one a seed that it drew as it started. A test of one of these things asks for the
fixture ``started_by_exec``. Linux only.
"""

import contextlib
import ctypes
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PROGRAMS = (
    "grete.cli",
    "grete.worker.life.process_main",
    "pytest",
    "tasks.demo",
    "tests.calls.killed_calls",
    "tests.cli.killed_applies",
    "tests.client.spooling",
    "tests.execution.killed_ingests",
    "tests.execution.killed_slices",
    "tests.execution.killed_snapshots",
    "tests.feeds.killed_feeds",
    "tests.logs.appender",
    "tests.sinks.killed_worker",
    "tests.sinks.ledger_service",
    "tests.state.killed_bulk_writes",
    "tests.state.pinning_host",
    "tests.stores.changing_store",
    "tests.support.forked_text",
    "tests.verification.chaos.zygote",
    "tests.worker.asking_process",
)
TEXT = [sys.executable, "-m", "tests.support.forked_text"]  # instead of [sys.executable, "-c"]
SEEDS = ("0", "random")  # values of PYTHONHASHSEED
MESSAGE_BYTES_MAX, FILES_MAX = 1 << 17, 64
SERVE = """
import json, select, sys
given = json.loads(sys.argv[1])
if given[0] in select.select(given[:2], [], [])[0]:  # imports are for who asks
    from tests.support import fork_server
    fork_server.serve(*given)
else:
    import socket
    from tests.support import forking
    forking.forget(socket.socket(fileno=given[0]))
"""

_USUAL = (None, None, True, False, None, None, None, -1)  # what no program of ours is started with
OWN_SESSION, OWN_GROUP = 0, -1  # instead of a group
NETWORK = Path("/proc/thread-self/ns/net")
CLONE_NEWNET = 0x40000000
_READ_AT_START = ("PYTHON", "LC_", "LANG")  # variables that begin so are read as the interpreter starts
BY_EXEC = subprocess.Popen
served_by_seed: dict[str, "Served"] = {}
_starting: list[Callable[[], None]] = []  # what starts the servers, before the first program


class Served(NamedTuple):
    """The path of a server's socket, the environment that it was started with, its session and its network."""

    name: str
    environment: dict[str, str]
    session: int
    network: int


class Request(NamedTuple):
    """A request to start a program. ``targets``: the numbers of the sent files in the new process, in their order."""

    program: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    targets: list[int]
    group: int  # of processes, or OWN_SESSION, or OWN_GROUP
    ignored: Sequence[int]  # the signals that who asks ignores: a start by exec hands these on, and no handler
    safe: bool  # by -P: nothing is imported from the directory
    bound: bool = False  # it is killed if who asked ends before it
    enters: bool = False  # the last two files are a network namespace, and a pipe that is closed once it is there


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Fork PROGRAMS within the block. At its end, what is left of them is killed."""
    with contextlib.ExitStack() as servers:
        home = os.open(NETWORK, os.O_RDONLY)
        servers.callback(os.close, home)
        _starting.append(functools.partial(_start_servers, dict(os.environ), home, servers))
        subprocess.Popen = ForkingPopen  # type: ignore[misc]  # for all who start processes
        try:
            yield
        finally:
            subprocess.Popen = BY_EXEC  # type: ignore[misc]  # as it was
            _starting.clear()
            served_by_seed.clear()


def _start_servers(environment: dict[str, str], home: int, running: contextlib.ExitStack) -> None:
    alive_read, alive_write = os.pipe()  # the kernel closes its ends with this process, however that ends
    environment.pop("PYTHONPATH", None)
    folder = tempfile.mkdtemp(prefix="grete-fork-")  # a path is the same in each network; a server deletes its own
    listeners = {seed: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for seed in SEEDS}
    for seed, listener in listeners.items():
        listener.bind(f"{folder}/{seed}")
        listener.listen(FILES_MAX)
        served_by_seed[seed] = Served(listener.getsockname(), environment, os.getsid(0), os.fstat(home).st_ino)
    for seed, listener in listeners.items():
        with _at(home):  # in a network of a test's own it would end with that
            process = BY_EXEC(
                [sys.executable, "-c", SERVE, json.dumps([listener.fileno(), alive_read, served_by_seed])],
                cwd=ROOT,
                env=environment | {"PYTHONHASHSEED": seed},
                pass_fds=[listener.fileno(), alive_read],
                stdin=subprocess.DEVNULL,
            )
        running.callback(process.wait)
        listener.close()
    os.close(alive_read)
    running.callback(os.close, alive_write)


def forget(listener: socket.socket) -> None:
    """Delete the path at which a server listens, and the folder with the last of them."""
    path = Path(listener.getsockname())
    with contextlib.suppress(OSError):  # the folder is left to the other server
        path.unlink()
        path.parent.rmdir()


@contextlib.contextmanager
def _at(home: int) -> Iterator[None]:
    """Be in that network."""
    with NETWORK.open("rb") as here:
        if moves := os.fstat(here.fileno()).st_ino != os.fstat(home).st_ino:
            enter(home)
        try:
            yield
        finally:
            if moves:
                enter(here.fileno())


def enter(namespace: int) -> None:
    """Bring this thread into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns is there from Python 3.12 on
    assert libc.setns(namespace, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


class ForkingPopen(subprocess.Popen[Any]):
    """As it ever was, but for PROGRAMS. It is connected to the server as long as the process lives."""

    _server: socket.socket | None = None

    def _execute_child(self, *options: Any) -> None:
        args, executable, preexec_fn, close_fds, pass_fds, cwd, env, _, _, shell, *pipes = options[:16]
        _, gid, gids, uid, umask, new_session, group = options[16:]
        asked = (executable, preexec_fn, close_fds, shell, gid, gids, uid, umask)
        environment = dict(os.environ if env is None else env)
        directory = Path.cwd() / (cwd or "")
        usual = asked == _USUAL and group in (-1, 0)  # as its parent has it, or its own
        if not usual or not _is_known(args, environment, directory, new_session=new_session):
            super()._execute_child(*options)  # type: ignore[misc]  # private, and the only seam
            return
        stdin, _, _, stdout, _, stderr = pipes
        files = {0: stdin, 1: stdout, 2: stderr} | {number: number for number in pass_fds}
        group = OWN_SESSION if new_session else OWN_GROUP if group == 0 else os.getpgid(0)
        safe, (program, *arguments) = args[1] == "-P", args[args.index("-m") + 1 :]
        given = [os.fspath(arg) for arg in arguments]
        served = served_by_seed[_seed(environment)]
        enters = NETWORK.stat().st_ino != served.network
        ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
        request = Request(program, given, environment, str(directory), [*files], group, ignored, safe, enters=enters)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect(served.name)
        sent = [target if number < 0 else number for target, number in files.items()]  # none given: as in this process
        with _entering() if enters else contextlib.nullcontext(list[int]()) as entering:
            socket.send_fds(self._server, [json.dumps(request).encode()], [*sent, *entering])
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


@contextlib.contextmanager
def _entering() -> Iterator[list[int]]:
    """Within it, send these files: the namespace of this thread, and a pipe; it ends when the process is there."""
    read, write = os.pipe()
    namespace = os.open(NETWORK, os.O_RDONLY)
    try:
        yield [namespace, write]
    finally:
        os.close(namespace)
        os.close(write)
        os.read(read, 1)
        os.close(read)


def _is_known(args: Any, environment: dict[str, str], directory: Path, *, new_session: bool) -> bool:
    """Whether a fork would do as a start by exec does."""
    if not isinstance(args, list):
        return False
    named = [arg for number, arg in enumerate(args[:4]) if (number, arg) != (1, "-P")][:3]
    if named[:2] != [sys.executable, "-m"] or named[2] not in PROGRAMS:
        return False
    while _starting:
        _starting.pop()()
    served = served_by_seed.get(_seed(environment))
    if served is None:
        return False
    same = _at_start(environment) == _at_start(served.environment)
    return same and directory.is_dir() and (new_session or os.getsid(0) == served.session)


def server_for(environment: dict[str, str], directory: Path) -> str | None:
    """Return the name of the server that forks PROGRAMS for a shell, if a fork would do as a start by exec does."""
    known = _is_known([sys.executable, "-m", PROGRAMS[0]], environment, directory, new_session=False)
    return served_by_seed[_seed(environment)].name if known else None


def _seed(environment: dict[str, str]) -> str:
    return environment.get("PYTHONHASHSEED") or "random"


def _at_start(environment: dict[str, str]) -> dict[str, str]:
    apart = ("PYTHONPATH", "PYTHONHASHSEED")
    return {name: text for name, text in environment.items() if name.startswith(_READ_AT_START) and name not in apart}
