"""Packet loss on one connection: `python -m tests.sinks.lossy_prove --rounds 20`. Root, Linux; long: not for pytest.

A worker in a network namespace writes outputs in transactions. In each round one of its connections loses all packets
for some seconds, longer than its client waits for an answer. So the client asks for an end again on another connection,
and the kernel sends the first one again, later. It prints what was lost or came twice, how the worker ended, and how
often it took a new epoch. It ends by itself; namespaces and processes go with it.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from grete.testing.broker import Broker
from tests.sinks.late_end_scene import MODES, SinkScene
from tests.verification.chaos.cluster import Cluster
from tests.verification.machines.machine import Machine
from tests.verification.machines.network import Network

FEED_S = 0.05  # between two batches of inputs: each interval of 100 ms has some
# The least that the client takes for a transaction's producer; requests are given up well within a round's loss.
SOON = "socket.timeout.ms=2000\nproducer.transaction.timeout.ms=10000\n"


class LossyScene(SinkScene):
    """Its worker runs on a machine of its own."""

    def __init__(self, broker: Broker, machine: Machine, folder: Path, mode: str) -> None:
        self.machine = machine
        options = folder / "kafka.conf"
        options.write_text(SOON)
        super().__init__(broker, broker.bootstrap, folder, mode, [f"--kafka-config={options}"])

    def launch(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start the worker there."""
        return self.machine.start(command, self.log, environment={"PYTHONHASHSEED": "0"})

    def lose(self, own: int | None, seconds: float) -> None:
        """Lose what a connection carries for that long, while inputs come; then let all through."""
        self.machine.cut_connection(own)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self.feed()
            time.sleep(FEED_S)
        self.machine.cut_connection(None)
        self.feed()
        self.outputs()


def main(arguments: list[str]) -> int:
    """Run the rounds; return 1 if an output is lost or there twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.sinks.lossy_prove", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=6.0, help="of loss, in each round")
    parser.add_argument("--mode", choices=tuple(MODES), default="aligned")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of connections")
    given = parser.parse_args(arguments)
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name, Network(Path(name), ["worker"]) as network:
        folder, machine = Path(name) / "scene", network.machines["worker"]
        folder.mkdir()
        with (
            Cluster(Path(name) / "kafka", host=network.host) as cluster,
            LossyScene(Broker(cluster.bootstrap, "its jars"), machine, folder, given.mode) as scene,
        ):
            scene.feed()
            scene.outputs()
            port = int(cluster.bootstrap.rpartition(":")[2])
            for number in range(given.rounds):
                own = draw.choice(machine.connections(port))
                scene.lose(own, given.seconds)
                _tell(f"round {number}: connection {own}; {scene.found()}, {len(scene.renewals())} renewals so far")
            found, ends = scene.found(), scene.ends
            _tell(f"{given.mode}: {given.rounds} rounds, {scene.fed} inputs: {found}; workers that ended: {ends}")
    return int(any(found))


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
