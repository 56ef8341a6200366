"""On a real Kafka broker: output topics that get more partitions, and a changed job, between two starts."""

import signal
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from grete.protocol.partitioner import partition_of
from tests.cli.test_kafka import Cluster, Shell, Terminals, cluster, shell, terminals
from tests.cli.test_run import grete, start
from tests.support.kafka_topics import delete, widen
from tests.support.waiting import Patience
from tests.worker.workers import LIMIT_S

__all__ = ["cluster", "shell", "terminals"]  # fixtures
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # workers start and end many times

CUSTOMERS = [f"customer {number}" for number in range(20)]
GROWN = 5


class Total(NamedTuple):
    """One record of the output topic."""

    customer: str
    partition: int
    total: int


def read(at: Cluster, partitions: int, count: int) -> list[Total]:
    """Return all that is in the output topic, once there are ``count`` records, partition by partition."""
    options = {"group.id": f"{at.name}-reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": at.bootstrap, "auto.offset.reset": "earliest", **options})
    consumer.assign([KafkaPartition(at.totals, number, 0) for number in range(partitions)])
    found: list[Total] = []
    ended: set[int] = set()
    patience = Patience(f"{count} records", lambda: found)
    while len(found) < count or len(ended) < partitions:
        patience.check()
        message = consumer.poll(1.0)
        if message is None:
            continue
        number = message.partition() or 0
        if message.error() is not None:
            ended.add(number)
            continue
        ended.discard(number)
        found.append(Total((message.key() or b"").decode(), number, int.from_bytes(message.value() or b"", "big")))
    consumer.close()
    return found


def by_customer(found: list[Total]) -> dict[str, list[int]]:
    """Return the totals of each customer in their order; all of one customer stand in one partition, that of two."""
    totals: dict[str, list[int]] = {}
    for customer, partition, total in found:
        assert partition == partition_of(customer.encode(), 2)
        totals.setdefault(customer, []).append(total)
    return totals


def grow(at: Cluster, partitions: int) -> None:
    """Give the output topic more partitions, as an operator does."""
    widen(at.admin, at.totals, partitions)


def rewrite(at: Cluster, old: str, new: str) -> None:
    """Change the job's code."""
    path = at.folder / "totals.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


MODES = {
    "aligned": ("", {}),
    "at least once": ("", {"GRETE_PROCESSING_GUARANTEE": "at-least-once"}),
    "deterministic": (', mode="deterministic"', {}),
    "deterministic, sequenced": (', mode="deterministic"', {"GRETE_OUTPUT_DELIVERY": "sequenced"}),
}


@pytest.mark.parametrize("mode", MODES)
def test_an_output_topic_grows_between_two_starts_and_under_workers(
    cluster: Cluster, terminals: Terminals, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Keys stay in the partitions that they began in, and nothing is written a second time elsewhere.

    Deterministic tasks are killed with outputs in the topic that no commit covers: they are made again.
    """
    argument, settings = MODES[mode]
    rewrite(cluster, "partitions=2)", f"partitions=2{argument})")
    for name, value in {"PYTHONHASHSEED": "0", **settings}.items():
        monkeypatch.setenv(name, value)
    rarely = {"GRETE_CHECKPOINT_INTERVAL_MS": "600000"} if argument else {}
    for name, value in rarely.items():
        monkeypatch.setenv(name, value)
    workers = [terminals.worker(partition) for partition in range(2)]
    cluster.order(dict.fromkeys(CUSTOMERS, 1))
    read(cluster, 2, 20)
    for worker in workers:
        worker.send_signal(signal.SIGKILL if argument else signal.SIGTERM)
        worker.wait(LIMIT_S)
    grow(cluster, GROWN - 1)
    workers = [terminals.worker(partition) for partition in range(2)]
    cluster.order(dict.fromkeys(CUSTOMERS, 1))
    read(cluster, GROWN - 1, 40)
    grow(cluster, GROWN)  # under the workers
    cluster.order(dict.fromkeys(CUSTOMERS, 1))
    found = by_customer(read(cluster, GROWN, 60))
    assert found == {customer: [1, 2, 3] for customer in CUSTOMERS}
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=LIMIT_S)
        assert worker.returncode == 0, log
        assert (
            f"output topic {cluster.totals} has 4 partitions, and job {cluster.name} goes on writing to the first 2"
            in log
        )


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_fork_writes_to_all_partitions_of_a_grown_output(cluster: Cluster, shell: Shell, mode: str) -> None:
    """The way that the warning names: a second job with the first one's state takes what is there."""
    rewrite(cluster, "partitions=2)", f"partitions=2{MODES[mode][0]})")
    log = ("--log", cluster.log)
    cluster.order(dict.fromkeys(CUSTOMERS, 1))
    grete("run", "totals.py", *log, cwd=cluster.folder)
    grow(cluster, GROWN)
    text = (cluster.folder / "totals.py").read_text()
    (cluster.folder / "second.py").write_text(text.replace(f'Job("{cluster.name}"', f'Job("{cluster.name}-second"'))
    grown = f"output topic {cluster.totals} has 5 partitions, and job {cluster.name} goes on writing to the first 2"
    up = start("run", "totals.py", *log, cwd=cluster.folder)
    assert grown in up.communicate(timeout=LIMIT_S)[1]
    assert shell("fork", "totals.py", "second.py", *log) == ["total/sums\t20 entries"]
    cluster.order(dict.fromkeys(CUSTOMERS, 1))
    grete("run", "second.py", *log, cwd=cluster.folder)
    new = [each for each in read(cluster, GROWN, 40) if each.total == 2]
    assert {each.customer: each.partition for each in new} == {
        customer: partition_of(customer.encode(), GROWN) for customer in CUSTOMERS
    }
    assert len(new) == 20


def test_an_output_topic_that_has_fewer_partitions_is_refused(cluster: Cluster, shell: Shell) -> None:
    """It was deleted and made again; with as many as before the job goes on."""
    log = ("--log", cluster.log)
    cluster.order(dict.fromkeys(CUSTOMERS, 1))
    grete("run", "totals.py", *log, cwd=cluster.folder)
    delete(cluster.admin, cluster.totals)
    cluster.make(cluster.totals, 1)
    refused = shell.error("run", "totals.py", *log)
    assert f"output topic {cluster.totals} has 1 partitions, and job {cluster.name!r} has written to 2" in refused
    assert f"kafka-topics.sh --alter --topic {cluster.totals} --partitions 2" in refused
    grow(cluster, 2)
    cluster.order(dict.fromkeys(CUSTOMERS, 1))
    grete("run", "totals.py", *log, cwd=cluster.folder)
    assert by_customer(read(cluster, 2, 20)) == {customer: [2] for customer in CUSTOMERS}


def test_a_changed_serde_is_refused(cluster: Cluster, shell: Shell) -> None:
    """In one line, with exit code 2, by run and by a reader; the old code goes on."""
    log = ("--log", cluster.log)
    cluster.order(dict.fromkeys(CUSTOMERS, 1))
    grete("run", "totals.py", *log, cwd=cluster.folder)
    same = (cluster.folder / "totals.py").read_text()
    rewrite(cluster, '"sums", key=utf8', '"sums", key=json(str)')
    told = "store total/sums: its key was utf8 and is json(str): give the changed one another name"
    for command in (["run", "totals.py"], ["up", "totals.py"], ["state", "scan", "totals.py", "sums"]):
        assert told in shell.error(*command, *log)
    assert shell.error("state", "scan", "totals.py", "sums", "--checkpoint", "1", *log).count(told) == 1
    (cluster.folder / "totals.py").write_text(same)
    cluster.order(dict.fromkeys(CUSTOMERS, 1))
    grete("run", "totals.py", *log, cwd=cluster.folder)
    assert by_customer(read(cluster, 2, 40)) == {customer: [1, 2] for customer in CUSTOMERS}
