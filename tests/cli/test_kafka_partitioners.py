"""Producers with other partitioners than the job's other producers, on a real broker: halted, with what to set."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from grete.core.graph.partitioners import Partitioner
from grete.errors import ExitCode
from grete.job.key_metadata import pinned
from grete.logs.address import LogAddress, open_address
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import crc32_partition_of, partition_of
from grete.testing.broker import Broker
from tests.cli.test_kafka import Cluster, Shell
from tests.cli.test_run import grete, start
from tests.support.kafka_topics import widen
from tests.worker.workers import LIMIT_S

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # workers start and end many times

CUSTOMERS = [f"Kunde Nr. {number} ä" for number in range(120)]
JAVA_LIKE = {"partitioner": "murmur2_random"}

TWO_INPUTS = """
users = Topic("NAME-users", key=utf8, value=json(dict[str, int]))

class Total(Total):
    users = Input(users)

job = Job("NAME", stages=[Total], partitions=2)
"""


class Shop:
    """A job over orders in two partitions, and producers of them."""

    def __init__(self, broker: Broker, folder: Path, shell: Shell) -> None:
        self.cluster, self.shell = Cluster(broker.bootstrap, folder), shell
        self.cluster.make(self.cluster.orders, 2)
        self.log = f"--log={self.cluster.log}"

    def producer(self, **options: str) -> Producer:
        """Return a producer of confluent-kafka as people make it."""
        return Producer({"bootstrap.servers": self.cluster.bootstrap, **options})

    def order(self, producer: Producer, place: Callable[[bytes], int] | None = None, topic: str | None = None) -> None:
        """Write one order for each customer; ``place``: a partitioner of the producer's own."""
        for customer in CUSTOMERS:
            where = -1 if place is None else place(customer.encode())  # -1: by its partitioner
            producer.produce(topic or self.cluster.orders, json.dumps({"amount": 1}), customer, partition=where)
        assert producer.flush(LIMIT_S) == 0

    def run(self, code: str = "totals.py") -> dict[str, int]:
        """Let workers use up what is there; return the state."""
        assert "all input is processed" in grete("run", code, self.log, cwd=self.cluster.folder)
        lines = (line.split("\t") for line in self.shell("state", "scan", code, "sums", self.log))
        return {name: int(total) for name, total in lines}

    def halts(self, code: str = "totals.py") -> str:
        """Let workers run until one halts; return what is said."""
        process = start("run", code, self.log, cwd=self.cluster.folder, stdin=subprocess.DEVNULL)
        out, err = process.communicate(timeout=2 * LIMIT_S)
        assert process.returncode == ExitCode.HALTED, (out, err)
        return " ".join(str(err).split())

    def pinned(self) -> Partitioner | None:
        """Return the partitioner that is pinned for the orders."""
        log = open_address(LogAddress(self.cluster.log), Path())
        found = pinned(log.open_metadata(self.cluster.name), [self.cluster.orders]).get(self.cluster.orders)
        log.close()
        return found

    def placed(self, place: Callable[[bytes, int], int], partitions: int = 2) -> bool:
        """Tell whether each order is where a partitioner gives its key a place."""
        log, keys = open_address(LogAddress(self.cluster.log), Path()), []
        for number in range(partitions):
            at = TopicPartition(self.cluster.orders, number)
            start_, end = log.bounds(at)
            while start_ < end and (rows := log.read(at, start_, 1 << 20)):
                keys += [(row.key or b"", number) for row in rows]
                start_ = rows[-1].offset + 1
        log.close()
        assert len(keys) >= len(CUSTOMERS)
        return all(place(key, partitions) == number for key, number in keys)

    def grow(self, partitions: int) -> str:
        """Give the orders more partitions, rescale the job, write its code; return the name of that."""
        orders = self.cluster.orders
        widen(self.cluster.admin, orders, partitions)
        self.shell("rescale", "totals.py", f"--partitions={partitions}", self.log)
        text = (self.cluster.folder / "totals.py").read_text()
        (self.cluster.folder / "more.py").write_text(text.replace("partitions=2", f"partitions={partitions}"))
        return "more.py"


@pytest.fixture
def shop(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shop:
    """Return a job that has not run."""
    monkeypatch.chdir(tmp_path)
    return Shop(kafka_broker, tmp_path, Shell(monkeypatch, capsys))


def all_have(total: int) -> dict[str, int]:
    """Return the state in which each customer has ordered so much."""
    return dict.fromkeys(CUSTOMERS, total)


def test_the_default_of_confluent_kafka_is_pinned_and_another_producer_halts(shop: Shop) -> None:
    """It is CRC32, as we compute it; an order placed by murmur2 is named, and so is the way out."""
    shop.order(shop.producer())
    assert shop.placed(crc32_partition_of)
    assert shop.run() == all_have(1)
    assert shop.pinned() is Partitioner.CRC32
    shop.order(shop.producer())
    assert shop.run() == all_have(2)
    shop.order(shop.producer(**JAVA_LIKE))
    said = shop.halts()
    assert (
        "is partitioned by CRC32 (the default of librdkafka, so of confluent-kafka), and state is kept per part" in said
    )
    assert "A producer that partitions by murmur2 writes there: set partitioner=consistent_random" in said
    assert "belongs in partition" in shop.halts()  # at the next start, too
    grete("run", "totals.py", shop.log, "--set=misplaced_keys=warn", cwd=shop.cluster.folder)
    split = shop.shell("state", "scan", "totals.py", "sums", shop.log)  # this is the damage: customers that are twice
    assert len(CUSTOMERS) < len(split) < 2 * len(CUSTOMERS)


def test_murmur2_is_pinned_and_the_default_of_confluent_kafka_halts(shop: Shop) -> None:
    """Orders of Java's default first, then the producer that everybody writes in Python."""
    shop.order(shop.producer(**JAVA_LIKE))
    assert shop.placed(partition_of)
    assert shop.run() == all_have(1)
    assert shop.pinned() is Partitioner.MURMUR2
    shop.order(shop.producer())
    said = shop.halts()
    assert "A producer that partitions by CRC32 (the default of librdkafka" in said
    assert "set partitioner=murmur2_random in producers of librdkafka (confluent-kafka" in said


def test_a_partitioner_of_the_producers_own_is_allowed(shop: Shop) -> None:
    """It must be the same for all producers, which cannot be seen: a rescale refuses."""
    for total in (1, 2):
        shop.order(shop.producer(), place=lambda key: sum(key) % 2)
        assert shop.run() == all_have(total)
    assert shop.pinned() is Partitioner.OWN
    assert "only their producer knows to which partition" in shop.shell.error(
        "rescale", "totals.py", "--partitions=3", shop.log
    )


def test_two_inputs_that_differ_halt(shop: Shop) -> None:
    """A table from Python beside a stream from Java: what belongs together comes to different tasks."""
    code = shop.cluster.folder / "totals.py"
    code.write_text(code.read_text() + TWO_INPUTS.replace("NAME", shop.cluster.name))
    users = f"{shop.cluster.name}-users"
    shop.cluster.make(users, 2)
    shop.order(shop.producer(**JAVA_LIKE))
    shop.order(shop.producer(), topic=users)
    said = shop.halts()
    assert "stage total: its inputs are partitioned differently" in said
    assert f"For {users} set partitioner=murmur2_random" in said


@pytest.mark.parametrize("options", [{}, JAVA_LIKE], ids=["crc32", "murmur2"])
def test_a_producer_with_the_old_number_of_partitions_halts_after_a_rescale(
    shop: Shop, options: dict[str, str]
) -> None:
    """It was there before the topic grew and has not asked since; a new one goes on where the state is now."""
    old = shop.producer(**options)
    shop.order(old)
    assert shop.run() == all_have(1)
    more = shop.grow(3)
    shop.order(shop.producer(**options))
    assert shop.run(more) == all_have(2)
    shop.order(old)
    said = shop.halts(more)
    assert "That is its partition of 2, as many as there were before the rescale to 3" in said
    assert "a producer with old metadata writes there: restart it" in said
