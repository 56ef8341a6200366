"""Machines of a network: what befalls one is what its name says, and nothing is left behind."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.testing.broker.settings import free_port
from tests.support.test_far_line import HandClock, is_silent
from tests.verification.machines.machine import CUT, DEAF, MUTE, NAMESPACES, WHOLE, Line, Machine, pids_in
from tests.verification.machines.network import Network, remove_left
from tests.verification.machines.tools import Tools

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

PORT = 5000
LIMIT_S = 60.0
# Sends its number, again and again, until it gets an answer to it; then the next one. What is lost is sent again soon.
TALKER = """
import socket
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.settimeout(0.02)
number = 0
while True:
    line.sendto(b"%d" % number, ("HOST", PORT))
    try:
        number = max(number, int(line.recv(100)) + 1)
    except TimeoutError:
        pass
"""


class Talk:
    """A program on a machine, and who answers it at the switch."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((network.host, PORT))
        self._socket.setblocking(False)
        text = TALKER.replace("HOST", network.host).replace("PORT", str(PORT))
        self.process = machine.start([sys.executable, "-c", text], machine.directory / "talker.log")
        self.received, self.highest = 0, -1  # messages; and the number that it has reached: what we said arrived

    def look(self) -> None:
        """Answer all that has come."""
        try:
            while True:
                data, sender = self._socket.recvfrom(100)
                self.received, self.highest = self.received + 1, max(self.highest, int(data))
                self._socket.sendto(data, sender)
        except BlockingIOError:
            select.select([self._socket], [], [], 0.001)  # a short one: what is waited for may be said elsewhere

    def until(self, condition: Callable[[], bool]) -> None:
        """Answer until the condition holds."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline
            self.look()

    def goes_on(self) -> None:
        """Wait until numbers rise: both directions work."""
        before = self.highest
        self.until(lambda: self.highest >= before + 5)

    def forget(self) -> None:
        """Take what was under way when the line was changed."""
        for _ in range(20):
            self.look()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path, ["one", "two"]) as made:
        yield made


@pytest.fixture
def talk(network: Network) -> Iterator[Talk]:
    talking = Talk(network, network.machines["one"])
    talking.goes_on()
    yield talking
    talking.close()


def test_what_a_line_loses(network: Network, talk: Talk) -> None:
    """Nothing comes from a mute machine, nothing gets to a deaf one, a lossy one gets on, a healed one too."""
    machine = network.machines["one"]
    for line in (MUTE, CUT):
        machine.set_line(line)
        talk.forget()
        received, ended = talk.received, time.monotonic() + 0.3
        talk.until(lambda ended=ended: time.monotonic() > ended)  # type: ignore[misc]  # mypy gives a default no type
        assert talk.received == received
        machine.heal()
        talk.goes_on()
    machine.set_line(DEAF)
    talk.forget()
    received, highest = talk.received, talk.highest
    talk.until(lambda: talk.received > received + 5)
    assert talk.highest <= highest + 1
    machine.set_line(Line(30, 30))
    talk.goes_on()
    machine.heal()
    assert machine.line == WHOLE
    machine.slow(100)
    talk.goes_on()
    machine.heal()


def test_a_program_that_is_forked_is_on_its_machine(network: Network) -> None:
    """As soon as its number is known: a machine that is killed then takes it along."""
    machine, namespace = network.machines["one"], NAMESPACES / network.machines["one"].namespace
    (machine.directory / "job.py").write_text("import signal\nsignal.pause()\n")
    command = [sys.executable, "-m", "grete.cli", "checkpoints", "job.py"]
    process = machine.start(command, machine.directory / "command.log")
    assert pids_in(namespace) == [process.pid]
    assert os.getpgid(process.pid) == process.pid
    parent = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) != os.getpid()  # it was forked
    machine.kill()
    assert process.wait(LIMIT_S) == -signal.SIGKILL


def test_a_frozen_machine_and_a_dead_one(network: Network, talk: Talk) -> None:
    """Frozen processes live and do nothing until they go on; the dead are dead, with all that they have started."""
    machine, namespace = network.machines["one"], NAMESPACES / network.machines["one"].namespace
    sleeper = "import signal; signal.pause()"
    text = f"import signal, subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleeper!r}]); signal.pause()"
    parent = machine.start([sys.executable, "-c", text], machine.directory / "parent.log")
    talk.until(lambda: len(pids_in(namespace)) == 3)
    machine.freeze()
    talk.forget()
    delivered = time.monotonic() + 0.3  # what was on its way when they froze
    talk.until(lambda: time.monotonic() > delivered)
    received, ended = talk.received, time.monotonic() + 0.3
    talk.until(lambda: time.monotonic() > ended)
    assert (talk.received, len(pids_in(namespace)), talk.process.poll()) == (received, 3, None)
    machine.thaw()
    talk.goes_on()
    machine.lose()
    assert pids_in(namespace) == []
    assert (talk.process.wait(LIMIT_S), parent.wait(LIMIT_S)) == (-signal.SIGKILL, -signal.SIGKILL)


def test_machines_reach_each_other_and_nothing_else(network: Network) -> None:
    """Each has an address of its own; there is no way out of the network."""
    one, two = network.machines["one"], network.machines["two"]
    text = """
import socket, sys
for host in sys.argv[1:]:
    try:
        socket.create_connection((host, 1), 20)
    except ConnectionRefusedError:
        print("reached", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""
    log = one.directory / "log"
    assert one.start([sys.executable, "-c", text, two.address, "192.0.2.1"], log).wait(LIMIT_S) == 0
    assert log.read_text().splitlines() == ["reached", "Network is unreachable"]


def test_what_is_behind_the_proxy_is_far_for_a_far_machine(network: Network) -> None:
    """For it alone, and until it is healed; by a clock that nothing but the test moves."""
    one, two, clock = network.machines["one"], network.machines["two"], HandClock()
    text = (
        "import socket, sys; line = socket.create_connection(sys.argv[1:], 60); line.sendall(b'question'); line.recv(1)"
    )
    with socket.create_server(("127.0.0.1", 0)) as broker, ExitStack() as opened:
        line = free_port()
        opened.enter_context(network.proxy(line, broker.getsockname()[1], seed=1, clock=clock))

        def asked_by(machine: Machine) -> socket.socket:
            machine.start([sys.executable, "-c", text, network.host, str(line)], machine.directory / "log")
            connection = opened.enter_context(broker.accept()[0])
            connection.settimeout(LIMIT_S)
            return connection

        one.far(300)
        assert asked_by(two).recv(100) == b"question"
        assert clock.asked.empty()
        from_one = asked_by(one)
        due_s = clock.asked.get(timeout=LIMIT_S)
        assert 0.225 <= due_s <= 0.375
        assert is_silent(from_one)
        clock.move(due_s)
        assert from_one.recv(100) == b"question"
        one.heal()
        assert asked_by(one).recv(100) == b"question"
        assert clock.asked.empty()


def test_nothing_is_left_of_a_network(tmp_path: Path) -> None:
    """A network goes with its processes when the block ends by an error, and when its process is killed."""
    used: list[Machine] = []

    def fail() -> None:
        with Network(tmp_path, ["one"]) as network:
            used.append(network.machines["one"])
            used[0].start(["sleep", "600"], tmp_path / "log")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not (NAMESPACES / used[0].namespace).exists()
    text = (
        "import os, sys; from pathlib import Path; from tests.verification.machines.network import Network\n"
        "network = Network(Path(sys.argv[1]), ['one']); network.__enter__()\n"
        "network.machines['one'].start(['sleep', '600'], Path(sys.argv[1]) / 'log')\n"
        "print(network.machines['one'].namespace, flush=True); os.kill(os.getpid(), 9)"
    )
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)], capture_output=True, text=True, env=paths, check=False
    )
    left = NAMESPACES / done.stdout.strip()
    assert (done.returncode, len(pids_in(left))) == (-signal.SIGKILL, 1)
    remove_left(Tools(tmp_path / "root"))
    assert not left.exists()
