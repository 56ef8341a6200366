"""One machine of a network: its processes, its line, and what may befall them."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.far_line import Delay
from tests.verification.machines.tools import NoNetwork, Tools

NAMESPACES = Path("/run/netns")  # where ``ip netns`` keeps them
CLONE_NEWNET = 0x40000000
END_S_MAX = 30.0  # of processes under SIGKILL, or under SIGSTOP until they have stopped
BURST_BYTES = 20_000  # that a slow line passes at once: a frame of 64 KiB is cut into those that fit
QUEUE_MS = 400  # that a frame waits at a slow line; what comes above that is lost
ESTABLISHED = "01"  # the state of a connection, in /proc/net/tcp
JITTER_SHARE = 0.25  # of the delay of a far line


class Line(NamedTuple):
    """The percentages of frames that are lost: of those from the machine, and of those to it."""

    lost_from: int = 0
    lost_to: int = 0


WHOLE, CUT = Line(), Line(100, 100)
MUTE, DEAF = Line(100, 0), Line(0, 100)  # nothing that it sends arrives; nothing arrives at it


@dataclass
class Machine:
    """``directory`` is its disk. Made by Network; a line that is changed stays so until it is healed."""

    name: str
    address: str
    directory: Path
    namespace: str
    _switch: str
    port: str  # at the switch
    _tools: Tools
    _apply: Callable[[], None]
    _delays: dict[str, Delay]  # of a proxy at the switch, by address
    line: Line = WHOLE
    is_frozen: bool = False
    _started: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def write(self, name: str, text: str) -> None:
        """Write a file in the machine's directory at once: a process here that opens it meanwhile never finds half."""
        (part := self.directory / f"{name}.part").write_text(text)
        part.replace(self.directory / name)

    def start(
        self,
        command: Sequence[str],
        log: Path,
        *,
        files: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a process here, in the machine's directory; what it prints goes to ``log``; ``files`` stay open."""
        # A program that enters the namespace by itself, as ``ip netns exec`` does, would survive a kill before that.
        with log.open("ab") as output, inside(NAMESPACES / self.namespace):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env=os.environ | dict(environment or {}),
                pass_fds=files,
                process_group=0,  # Ctrl-C is for those who made the network
            )
        self._started = [each for each in self._started if each.poll() is None] + [process]
        return process

    def kill(self) -> None:
        """End all processes by SIGKILL; their connections are closed by the kernel, as if each had died by itself."""
        end_all(NAMESPACES / self.namespace)
        for process in self._started:
            process.wait(END_S_MAX)
        self.is_frozen = False

    def lose(self) -> None:
        """Lose the machine as a whole, as without power: no byte says that its processes are dead."""
        self.set_line(CUT)
        self.kill()

    def freeze(self) -> None:
        """Stop all processes by SIGSTOP; return when they have stopped, in no system call."""
        namespace, deadline = NAMESPACES / self.namespace, time.monotonic() + END_S_MAX
        while True:
            found = {pid: _stat(pid) for pid in pids_in(namespace)}
            moving = [pid for pid, stat in found.items() if stat.state not in "TZ"]
            if not moving:
                break
            assert time.monotonic() < deadline, f"{self.name}: {moving} do not stop"
            for pid in moving:
                send(signal.SIGSTOP, pid, namespace)
            waiting = {pid for pid in moving if found[pid].state == "D"}
            for pid, stat in found.items():
                if stat.state == "T" and stat.parent in waiting:  # until it runs its own program (vfork)
                    send(signal.SIGCONT, pid, namespace)
            time.sleep(0.001)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let all go on."""
        namespace = NAMESPACES / self.namespace
        for pid in pids_in(namespace):
            send(signal.SIGCONT, pid, namespace)
        self.is_frozen = False

    def set_line(self, line: Line) -> None:
        """Lose that share of frames from now on, without a word: nothing is refused, and no connection closes."""
        self.line = line
        self._apply()

    def connections(self, port: int) -> list[int]:
        """Return the machine's own ports of its connections to a port elsewhere, in order."""
        for pid in pids_in(NAMESPACES / self.namespace):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
                ends = [(int(row[1][-4:], 16), int(row[2][-4:], 16)) for row in rows if row[3] == ESTABLISHED]
                return sorted(own for own, other in ends if other == port)
        return []

    def cut_connection(self, own: int | None) -> None:
        """Lose what one connection of the machine sends and gets from now on; None: none any more."""
        table = "bridge connection"
        rules = f"table {table}\ndelete table {table}\n"
        if own is not None:
            sent = f"ip saddr {self.address} tcp sport {own} drop"
            got = f"ip daddr {self.address} tcp dport {own} drop"
            rules += f"table {table} {{\nchain sent {{\ntype filter hook prerouting priority 0;\n{sent}\n}}\n"
            rules += f"chain received {{\ntype filter hook postrouting priority 0;\n{got}\n}}\n}}\n"
        with inside(NAMESPACES / self._switch):
            self._tools.call(self._tools.nft, "-f", "-", stdin=rules)

    def slow(self, kbit_s: int) -> None:
        """Let no more than that through from now on, in each direction."""
        bucket = ["tbf", "rate", f"{kbit_s}kbit", "burst", str(BURST_BYTES), "latency", f"{QUEUE_MS}ms"]
        for where, device in ((self.namespace, "eth0"), (self._switch, self.port)):
            self._tools.call(self._tools.tc, "-n", where, "qdisc", "replace", "dev", device, "root", *bucket)

    def far(self, ms: float) -> None:
        """Let every byte take that long from now on, in each direction; for what goes by the proxy at the switch."""
        self._delays[self.address] = Delay(ms, ms * JITTER_SHARE)

    def heal(self) -> None:
        """Let everything through again, as fast as it goes."""
        self._delays.pop(self.address, None)
        self.set_line(WHOLE)
        for where, device in ((self.namespace, "eth0"), (self._switch, self.port)):
            self._tools.call(self._tools.tc, "-n", where, "qdisc", "replace", "dev", device, "root", "pfifo")


class _Stat(NamedTuple):
    """A process. ``state``: the kernel's letter: T is stopped, Z dead, D waits without signals."""

    state: str
    parent: int


@contextlib.contextmanager
def inside(namespace: Path) -> Iterator[None]:
    """Bring this thread into a network namespace: its connections, threads and processes begun within are there."""
    with Path("/proc/thread-self/ns/net").open("rb") as before, namespace.open("rb") as there:
        _set_namespace(there.fileno())
        try:
            yield
        finally:
            _set_namespace(before.fileno())


def _set_namespace(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns is there from Python 3.12 on
    if libc.setns(handle, CLONE_NEWNET):
        raise NoNetwork(f"this thread cannot enter a network namespace: {os.strerror(ctypes.get_errno())}: be root")


def pids_in(namespace: Path) -> list[int]:
    """Return the processes of a network namespace."""
    wanted = namespace.stat()
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_in(int(path.name), wanted)]


def end_all(namespace: Path) -> None:
    """Kill all processes of a namespace, and those that they start meanwhile; return when none is left."""
    deadline = time.monotonic() + END_S_MAX
    while left := pids_in(namespace):
        assert time.monotonic() < deadline, f"{namespace.name}: {left} do not end"
        for pid in left:
            send(signal.SIGKILL, pid, namespace)
        time.sleep(0.001)


def send(number: signal.Signals, pid: int, namespace: Path) -> None:
    """Send a signal to a process of a namespace; never to a stranger who got its number."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if _is_in(pid, namespace.stat()):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _is_in(pid: int, namespace: os.stat_result) -> bool:
    """Whether a process is in it; a dead one is nowhere."""
    try:
        own = Path(f"/proc/{pid}/ns/net").stat()
    except OSError:
        return False
    return (own.st_dev, own.st_ino) == (namespace.st_dev, namespace.st_ino)


def _stat(pid: int) -> _Stat:
    """Return the kernel's state of a process."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _Stat("Z", 0)
    return _Stat(state, int(parent))
