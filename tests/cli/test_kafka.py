"""Jobs on a real Kafka broker, as a person with a cluster of their own starts them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from grete.cli import command_line
from grete.logs import patience
from grete.testing.broker import Broker
from grete.testing.broker.settings import free_port
from tests.cli.test_run import grete, start
from tests.support.kafka_topics import create
from tests.support.waiting import Patience
from tests.worker.workers import LIMIT_S

pytestmark = pytest.mark.kafka

JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8
orders = Topic("NAME-orders", key=utf8, value=json(dict[str, int]))
totals = Topic("NAME-totals", key=utf8, value=int64)

class Total(Task):
    orders = Input(orders)
    sums = Store("sums", key=utf8, value=int64)
    out = Output(totals)
    def process(self, record: Record[str, dict[str, int]]) -> None:
        total = self.sums.get(record.key, 0) + record.value["amount"]
        self.sums.put(record.key, total)
        self.out.send(record.key, total)

job = Job("NAME", stages=[Total], partitions=2)
"""


class Cluster:
    """The broker as somebody else uses it, and a job in a folder; all names are this test's own."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        self.name = f"job{os.urandom(5).hex()}"
        self.orders, self.totals = f"{self.name}-orders", f"{self.name}-totals"
        self.log = f"kafka://{bootstrap}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        (folder / "totals.py").write_text(JOB.replace("NAME", self.name))

    def make(self, topic: str, partitions: int) -> None:
        """Make a topic."""
        create(self.admin, NewTopic(topic, partitions))

    def order(self, amounts: dict[str, int], **options: str) -> None:
        """Write an order for each customer, in a transaction if ``options`` name one."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", **options})
        if options:
            producer.init_transactions()
            producer.begin_transaction()
        for customer, amount in amounts.items():
            producer.produce(self.orders, json.dumps({"amount": amount}).encode(), customer.encode())
        if options:
            producer.commit_transaction()
        assert producer.flush(LIMIT_S) == 0

    def read_totals(self, count: int) -> dict[str, list[int]]:
        """Return customer → totals in their order, as a plain consumer reads ``count`` of them, and no more after."""
        group = f"{self.name}-reader"
        options = {"group.id": group, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "enable.partition.eof": True, **options})
        consumer.assign([KafkaPartition(self.totals, number, 0) for number in range(2)])
        found: dict[str, list[int]] = {}
        ended: set[int] = set()
        patience = Patience(f"{count} records", lambda: found)
        while sum(map(len, found.values())) < count or len(ended) < 2:
            patience.check()
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                ended.add(message.partition() or 0)
                continue
            ended.discard(message.partition() or 0)
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            found.setdefault(key.decode(), []).append(int.from_bytes(value, "big"))
        consumer.close()
        return found

    def published(self) -> int:
        """Return the sum of the positions in the input that lag tools see."""
        asked = [ConsumerGroupTopicPartitions(self.name)]
        found = self.admin.list_consumer_group_offsets(asked)[self.name].result()
        return sum(each.offset for each in found.topic_partitions or () if each.topic == self.orders)


@pytest.fixture
def cluster(kafka_broker: Broker, tmp_path: Path) -> Cluster:
    """Return a cluster whose orders have two partitions."""
    made = Cluster(kafka_broker.bootstrap, tmp_path)
    made.make(made.orders, 2)
    return made


class Shell:
    """Runs commands in this process, in the job's folder and with a short patience."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(patience, "CONNECT_S_MAX", 5.0)  # a broker among busy processes needs more than one
        monkeypatch.setattr(patience, "FIRST_S", 60.0)  # the line that says what is waited for would come just then
        monkeypatch.setattr(sys, "path", list(sys.path))
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str, code: int = 0) -> list[str]:
        """Run a command; return the lines that it prints, or with another ``code`` those of its error."""
        self._monkeypatch.setattr(sys, "argv", ["grete", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line()
        shown = self._capsys.readouterr()
        assert int(ended.value.code or 0) == code, shown
        # librdkafka tells of other tests' brokers that have ended, in lines of its own
        return [line for line in (shown.err if code else shown.out).splitlines() if not line.startswith("%")]

    def error(self, *arguments: str, code: int = 2) -> str:
        """Run a command that fails; return the one line that it says."""
        (line,) = self(*arguments, code=code)
        return line


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cluster: Cluster) -> Shell:
    """Return a shell in the job's folder."""
    monkeypatch.chdir(cluster.folder)
    return Shell(monkeypatch, capsys)


def test_a_topic_that_is_there_is_used_up(cluster: Cluster, shell: Shell) -> None:
    """The first five minutes: one command over others' JSON, also from transactions; then what it left can be read."""
    cluster.order({"ann": 3, "bob": 5})
    cluster.order({"ann": 4}, **{"transactional.id": cluster.name})
    log = ("--log", cluster.log)
    out = grete("run", "totals.py", *log, cwd=cluster.folder)
    assert "all input is processed" in out
    assert f"grete state scan totals.py total/sums --log {cluster.log}" in out
    assert cluster.read_totals(3) == {"ann": [3, 7], "bob": [5]}
    assert sorted(shell("state", "scan", "totals.py", "sums", *log)) == ["ann\t7", "bob\t5"]
    assert len(shell("topic", "read", "totals.py", cluster.totals, *log)) == 3
    assert f"{cluster.orders}[0]" in "".join(shell("checkpoints", "totals.py", *log))
    assert ["\tok\t" in line for line in shell("changelog", "verify", "totals.py", *log)] == [True, True]
    assert "\tcommit\t" in "".join(shell("changelog", "tail", "totals.py", "total", "0", *log))
    assert cluster.published() == 4  # with the mark of the transaction, behind which nothing is left: a lag of 0


class Terminals:
    """Workers started by hand, one a terminal, each with a state of its own as on several machines."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.open: list[subprocess.Popen[str]] = []

    def worker(self, partition: int) -> "subprocess.Popen[str]":
        """Start a worker as a person does."""
        command = ("worker", "totals.py", "--partition", str(partition), "--log", self._cluster.log)
        self.open.append(start(*command, "--directory", f"machine-{partition}", cwd=self._cluster.folder))
        return self.open[-1]


@pytest.fixture
def terminals(cluster: Cluster) -> Iterator[Terminals]:
    """Yield terminals; what still runs in them at the end is killed."""
    made = Terminals(cluster)
    yield made
    for process in made.open:
        process.kill()
        process.communicate()


def test_workers_by_hand_share_the_topics(cluster: Cluster, terminals: Terminals) -> None:
    """One worker a partition in terminals of their own; one is killed at work and started again: each total once."""
    workers = [terminals.worker(partition) for partition in range(2)]
    customers = [f"customer {number}" for number in range(20)]
    cluster.order(dict.fromkeys(customers, 1))
    cluster.read_totals(20)
    cluster.order(dict.fromkeys(customers, 1))
    workers[0].send_signal(signal.SIGKILL)
    workers[0].wait(LIMIT_S)
    cluster.order(dict.fromkeys(customers, 1))
    workers[0] = terminals.worker(0)
    assert cluster.read_totals(60) == {customer: [1, 2, 3] for customer in customers}
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=LIMIT_S)
        assert worker.returncode == 0, log
    assert cluster.published() == 60


def test_mistakes_are_one_line(shell: Shell, cluster: Cluster) -> None:
    """A wrong address, a topic that is missing or has other partitions, a job that has not run: what to do about it."""
    nowhere = f"kafka://127.0.0.1:{free_port()}"
    assert "is it up, and is the address right?" in shell.error("run", "totals.py", "--log", nowhere, code=1)
    assert "has not run on kafka://" in shell.error("checkpoints", "totals.py", "--log", cluster.log)
    text = (cluster.folder / "totals.py").read_text()
    (cluster.folder / "missing.py").write_text(text.replace(cluster.name, f"{cluster.name}x"))
    found = shell.error("run", "missing.py", "--log", cluster.log)
    assert f"kafka-topics.sh --create --topic {cluster.name}x-orders --partitions 2" in found
    (cluster.folder / "more.py").write_text(text.replace("partitions=2", "partitions=3"))
    assert "has 2 partitions" in (found := shell.error("run", "more.py", "--log", cluster.log))
    assert "Job(…, partitions=2)" in found
    topics = cluster.admin.list_topics(timeout=LIMIT_S).topics
    assert [name for name in topics if name.startswith(cluster.name)] == [cluster.orders]  # nothing was left behind


def test_options_come_from_a_file(shell: Shell, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """NAME=VALUE lines, as Kafka's users have them; a mistake names its line, and never shows what is there."""
    config = cluster.folder / "client.properties"
    monkeypatch.setenv("GRETE_LOG", cluster.log)
    monkeypatch.setenv("GRETE_KAFKA_CONFIG", str(config))
    for text, words in [
        ("# ours\n\nsasl.password hunter-2", "line 3 (not shown, it may be secret): write NAME=VALUE"),
        ("acks=all\nacks = 1", "line 2: acks is given twice"),
        ("acks = 1", "must be all"),
        ("bootstrap.servers=x:1", "give it as kafka://host:port"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.pass=hunter-2", "a Kafka option is refused"),
    ]:
        config.write_text(text)
        assert words in (line := shell.error("run", "totals.py"))
        assert "hunter" not in line
    config.unlink()
    assert "client.properties: No such file" in shell.error("run", "totals.py")


def test_the_demonstration_runs_on_kafka(cluster: Cluster) -> None:
    """Workers die, the index is identical; the next run finds everything done."""
    stale = [name for name in cluster.admin.list_topics(timeout=LIMIT_S).topics if name.startswith("inverted-index.")]
    for future in cluster.admin.delete_topics([*stale, "documents"]).values() if stale else ():
        future.exception(LIMIT_S)
    (cluster.folder / "docs").mkdir()
    for number in range(24):
        (cluster.folder / "docs" / f"{number}.txt").write_text(f"all the same words and one of its own {number}")
    options = ("--dir", "docs", "--kills", "1", "--log", cluster.log)
    out = grete(*options, cwd=cluster.folder, module="tasks.demo")
    assert "uncommitted records rolled back" in out
    assert "24 documents, 240 words" in out
    assert "The index is identical." in out
    out = grete(*options, cwd=cluster.folder, module="tasks.demo")
    assert "Indexed 0 new, changed or deleted documents" in out
    assert "The index is identical." in out
