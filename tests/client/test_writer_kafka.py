"""A Writer whose only broker is frozen, killed and started again under load, while its own program dies, too."""

import contextlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from grete.logs.kafka import KafkaLog
from grete.logs.partition_reader import rows
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from tests.client.spooling import counted
from tests.support.kafka_topics import create
from tests.verification.chaos.cluster import NOTICED_SOON, Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # brokers of its own

LIMIT_S = 180.0


@pytest.fixture
def cluster(kafka_broker: Broker, tmp_path: Path) -> Iterator[Cluster]:
    """Yield a broker that the test may kill, with the topic."""
    del kafka_broker  # asked for because it says whether jars can be had here
    with Cluster(tmp_path / "kafka", changed=NOTICED_SOON) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        create(admin, NewTopic("numbers", 2))
        yield made


class Program:
    """Writes numbers from ``first`` on, and says which ones its spool has."""

    def __init__(self, folder: Path, first: int, last: int, cluster: Cluster) -> None:
        command = [sys.executable, "-m", "tests.client.spooling", str(folder), str(first), str(last)]
        self._process = subprocess.Popen(
            [*command, f"kafka://{cluster.bootstrap}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.kept = first

    def more(self, count: int) -> None:
        """Wait until it has written this many more."""
        until, deadline = self.kept + count, time.monotonic() + LIMIT_S
        while self.kept < until:
            assert time.monotonic() < deadline
            self.kept = int(self._line()) + 1

    def end(self) -> None:
        """Wait until the log has all that it has written, and the program has ended."""
        while (line := self._line()) != "flushed\n":
            self.kept = int(line) + 1
        assert self._wait() == 0

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        assert self._process.stdout is not None
        said = [int(line) for line in self._process.stdout.read().split("\n")[:-1]]
        self.kept = max([self.kept, *(number + 1 for number in said)])
        self._wait()

    def _wait(self) -> int:
        with self._process:  # its pipes are closed, too
            return self._process.wait(LIMIT_S)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def test_a_broker_that_is_away_costs_only_disk(cluster: Cluster, tmp_path: Path) -> None:
    """Records are written on while it is frozen, while it is dead, and by a program that starts while it is dead."""
    program = Program(tmp_path, 0, 1_000_000, cluster)
    program.more(500)
    cluster.freeze(0)
    program.more(3_000)
    cluster.thaw(0)
    program.more(500)
    cluster.kill(0)
    program.more(1_000)
    program.kill()
    successor = Program(tmp_path, program.kept, program.kept + 5_000, cluster)
    successor.more(1_000)
    cluster.start(0)
    successor.end()
    with contextlib.closing(KafkaLog(cluster.bootstrap)) as log:
        partitions = [TopicPartition("numbers", number) for number in range(2)]
        found = Counter(counted({p.partition: list(rows(log, p, *log.bounds(p))) for p in partitions}))
    last = program.kept + 5_000
    assert {number for number in range(last) if str(number) not in found} == set()
    assert sum(found.values()) - last <= 1  # the one that was kept when the program died, and not said
