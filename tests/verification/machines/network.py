"""Machines on this machine: network namespaces at a switch, with addresses, directories and processes of their own.

    >>> with Network(directory, ["one", "two"]) as network:            # doctest: +SKIP
    ...     with Cluster(directory / "kafka", host=network.host) as broker:
    ...         network.machines["one"].start([sys.executable, "-m", "grete.cli", "up", …], log)

Within the block the calling thread is at the switch: its connections and the processes that it starts have the address
``network.host``. No namespace has a way out, so all networks have the same addresses. Linux only, as root.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.far_line import Clock, Delay, FarLine
from tests.verification.machines.machine import NAMESPACES, Machine, end_all, inside
from tests.verification.machines.tools import NoNetwork, Tools

SUBNET = "10.88.0"
SWITCH = "switch"
MACHINES_MAX = 100
OWN = re.compile(r"grete-(\d+)-\w+-\w+")


class Network:
    """A switch and machines, within a ``with`` block. Raises NoNetwork where they cannot be made."""

    host = f"{SUBNET}.1"

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        """``names`` of the machines; each has its directory below ``directory``."""
        assert len(names) <= MACHINES_MAX
        self._prefix = f"grete-{os.getpid()}-{os.urandom(3).hex()}"
        self._names, self._directory = names, directory
        self.machines: dict[str, Machine] = {}
        self._delays: dict[str, Delay] = {}  # of machines that are far, by address
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        """Make all, and bring this thread to the switch."""
        with ExitStack() as undone:
            root = undone.enter_context(tempfile.TemporaryDirectory(prefix="grete-network-"))
            self._tools = tools = Tools(Path(root))
            remove_left(tools)
            switch = self._namespace(SWITCH, undone)
            tools.call(tools.ip, "-n", switch, "link", "add", "bridge", "type", "bridge")
            tools.call(tools.ip, "-n", switch, "address", "add", f"{self.host}/24", "dev", "bridge")
            for device in ("lo", "bridge"):
                tools.call(tools.ip, "-n", switch, "link", "set", device, "up")
            for number, name in enumerate(self._names):
                self.machines[name] = self._machine(number, name, switch, undone)
            self._apply()
            undone.enter_context(inside(NAMESPACES / switch))
            self._closing = undone.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes of the machines and remove the namespaces."""
        self._closing.close()

    def proxy(self, port: int, to: int, seed: int, clock: Clock | None = None) -> FarLine:
        """Return a proxy at the switch, to a port of it. What is behind it is far for the machines that are far."""
        return FarLine(port, to, self.host, delays=self._delays, seed=seed, clock=clock)

    def _namespace(self, name: str, undone: ExitStack) -> str:
        full = f"{self._prefix}-{name}"
        undone.callback(remove, self._tools, full)
        self._tools.call(self._tools.ip, "netns", "add", full)
        return full

    def _machine(self, number: int, name: str, switch: str, undone: ExitStack) -> Machine:
        namespace, tools, port = self._namespace(name, undone), self._tools, f"port{number}"
        address = f"{SUBNET}.{11 + number}"
        link = ["link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace]
        tools.call(tools.ip, "-n", switch, *link)
        tools.call(tools.ip, "-n", switch, "link", "set", port, "master", "bridge", "up")
        tools.call(tools.ip, "-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            tools.call(tools.ip, "-n", namespace, "link", "set", device, "up")
        directory = self._directory / name
        directory.mkdir(parents=True, exist_ok=True)
        machine = Machine(name, address, directory, namespace, switch, port, tools, self._apply, self._delays)
        undone.callback(machine.kill)
        return machine

    def _apply(self) -> None:
        """Let the switch lose what the lines of the machines lose."""
        sent = "".join(_drops("iifname", each.port, each.line.lost_from) for each in self.machines.values())
        received = "".join(_drops("oifname", each.port, each.line.lost_to) for each in self.machines.values())
        rules = (
            "table bridge faults\ndelete table bridge faults\ntable bridge faults {\n"
            f"chain sent {{\ntype filter hook prerouting priority 0;\n{sent}}}\n"
            f"chain received {{\ntype filter hook postrouting priority 0;\n{received}}}\n}}\n"
        )
        with inside(NAMESPACES / f"{self._prefix}-{SWITCH}"):
            self._tools.call(self._tools.nft, "-f", "-", stdin=rules)


def _drops(side: str, port: str, percent: int) -> str:
    """Return the rule that loses that share of the frames of a port."""
    share = f"numgen random mod 100 < {percent} " if percent < 100 else ""
    return f'{side} "{port}" {share}drop\n' if percent else ""


def remove(tools: Tools, namespace: str) -> None:
    """End all processes of a namespace, and remove it."""
    path = NAMESPACES / namespace
    if path.exists():
        if not namespace.endswith(f"-{SWITCH}"):  # there is the process that asks
            end_all(path)
        tools.call(tools.ip, "netns", "delete", namespace)


def remove_left(tools: Tools) -> None:
    """Remove the namespaces of processes that were killed."""
    for path in NAMESPACES.glob("grete-*") if NAMESPACES.exists() else ():
        found = OWN.fullmatch(path.name)
        if found is not None and not Path(f"/proc/{found[1]}").exists():
            with contextlib.suppress(NoNetwork, FileNotFoundError):  # another process does the same
                remove(tools, path.name)
