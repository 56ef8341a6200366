"""Commands that read a job on a real Kafka broker: records and not offsets, what is committed and not what was."""

import logging
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer

from grete.cli.commands.topic import topic_read
from grete.cli.job_target import NamedJob
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs import open_transactions
from grete.logs.address import LogAddress
from grete.logs.partition_reader import rows_left
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.backfill.ranges import cover, parse_until
from grete.spark.format.topic_source import TopicSource
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.commits import all_wirings
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob
from tests.cli.test_kafka import Cluster, Shell
from tests.cli.test_run import grete
from tests.support import waiting
from tests.worker.workers import LIMIT_S

pytestmark = pytest.mark.kafka

Run = Callable[..., list[str]]


@pytest.fixture
def cluster(kafka_broker: Broker, tmp_path: Path) -> Cluster:
    """Return a cluster whose orders have two partitions."""
    made = Cluster(kafka_broker.bootstrap, tmp_path)
    made.make(made.orders, 2)
    return made


def test_a_machine_that_had_the_worker_once_prints_what_is_committed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Directory A had it, then B; asked in A, on the broker's word: the changelog answers, and so it is said."""
    monkeypatch.chdir(cluster.folder)
    shell, log = Shell(monkeypatch, capsys), f"--log={cluster.log}"
    get = ["state", "get", "totals.py", "sums", "ann", log]
    for directory, amount in (("a", 30_300), ("b", 900)):
        cluster.order({"ann": amount, "bob": 1})
        grete("run", "totals.py", log, f"--directory={directory}", cwd=cluster.folder)
    assert shell(*get, "--directory=a") == ["31200"]
    assert shell(*get, "--directory=b") == ["31200"]
    assert shell(*get, "--directory=never-there") == ["31200"]
    assert sorted(shell("state", "scan", "totals.py", "sums", log, "--directory=a")) == ["ann\t31200", "bob\t2"]
    assert not (cluster.folder / "never-there").exists()


def test_the_last_records_are_counted_without_the_ends_of_transactions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``topic read -n 1`` prints the last record of each partition: the end of a transaction is behind it."""
    monkeypatch.chdir(cluster.folder)
    shell, log = Shell(monkeypatch, capsys), f"--log={cluster.log}"
    read = ["topic", "read", "totals.py", cluster.totals, log]
    for amount in (1, 2, 4):
        cluster.order({"ann": amount})
        grete("run", "totals.py", log, cwd=cluster.folder)
    last = [[line.split("\t")[2:] for line in shell(*read, *more)] for more in (["-n", "1"], ["-n", "2"], [])]
    assert last == [[["ann", "7"]], [["ann", "3"], ["ann", "7"]], [["ann", "1"], ["ann", "3"], ["ann", "7"]]]


PRICED = """
from grete import Input, Job, Output, Record, Task, Topic, Store, utf8
prices, sales = Topic("NAME-prices", key=utf8, value=utf8), Topic("NAME-sales", key=utf8, value=utf8)

class Price(Task):
    sales = Input(sales)
    prices = Input(prices, bootstrap=True)
    rows = Store("rows", key=utf8, value=utf8)
    out = Output(Topic("NAME-out", key=utf8, value=utf8))
    def process(self, record: Record[str, str]) -> None:
        if record.topic == prices.name:
            self.rows.put(record.key, record.value)
        else:
            self.out.send(record.key, str(self.rows.get(record.key)))

job = Job("NAME", stages=[Price])
"""


LATEST = """
from grete import Input, Job, Record, Store, Task, Topic, utf8

class Keep(Task):
    prices = Input(Topic("NAME-prices", key=utf8, value=utf8), start="latest")
    rows = Store("rows", key=utf8, value=utf8)
    def process(self, record: Record[str, str]) -> None:
        self.rows.put(record.key, record.value)

job = Job("NAME", stages=[Keep])
"""


def send(by: Producer, partition: TopicPartition, **rows: str) -> None:
    """Send rows, and wait until they are there."""
    for key, value in rows.items():
        by.produce(partition.topic, value, key)
    assert by.flush(LIMIT_S) == 0


def positions(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """Return the positions of a consumer group."""
    found = cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return {TopicPartition(each.topic, each.partition): each.offset for each in found.topic_partitions or ()}


def test_a_table_is_whole_and_a_lag_ends_at_0_where_others_write_in_transactions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A transaction that was left open hides rows of the table: it is awaited, and named. Aborted ones are no lag."""
    monkeypatch.chdir(cluster.folder)
    monkeypatch.setattr(open_transactions, "SAY_S", 0.0)
    name, shell, log = cluster.name, Shell(monkeypatch, capsys), f"--log={cluster.log}"
    prices, sales = TopicPartition(f"{name}-prices", 0), TopicPartition(f"{name}-sales", 0)
    for topic in (prices.topic, sales.topic):
        cluster.make(topic, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    options = {"transactional.id": name, "transaction.timeout.ms": 600_000}  # it is open until the test ends it
    stranger = Producer({"bootstrap.servers": cluster.bootstrap, **options})
    stranger.init_transactions()
    send(producer, prices, ann="1")
    stranger.begin_transaction()
    send(stranger, prices, eve="0")
    send(producer, prices, bob="2")
    send(producer, sales, ann="x", bob="x")
    file = cluster.folder / "priced.py"
    file.write_text(PRICED.replace("NAME", name))
    address = LogAddress(cluster.log)
    where = JobDirectory(cluster.folder / "job", address=address)
    with LocalJob(load_job(str(file)), str(file), where, Settings(checkpoint_interval_ms=50)) as local:
        named = f"{prices}: an open transaction begins at offset 1 with key 'eve'"

        def until(condition: Callable[[], bool]) -> None:
            said = lambda: (local.supervisor.news, local.reports)  # noqa: E731  # in one place
            waiting.until(condition, step=lambda: local.poll(50), saw=said)

        until(lambda: local.drained(local.ends()) or any(named in news for news in local.supervisor.news))
        assert not local.drained(local.ends())
        assert any(named in line for line in shell("checkpoints", "priced.py", log, "--directory=job"))
        assert named in "".join(shell("doctor", "priced.py", log, "--directory=job"))
        stranger.abort_transaction()
        until(lambda: local.drained(local.ends()))
        out = TopicPartition(f"{name}-out", 0)
        rows = rows_left(local.log, out, *local.log.bounds(out))
        assert [(row.key, row.value) for row in rows] == [(b"ann", b"1"), (b"bob", b"2")]
        stranger.begin_transaction()
        send(stranger, sales, eve="y")
        stranger.abort_transaction()
        until(lambda: local.ends()[sales] == 4)  # 2 records, 1 that was taken back, and the mark of that

        def lag_from(partition: TopicPartition) -> int:
            tasks = [task for worker in local.supervisor.workers.values() for task in worker.reports.tasks.values()]
            reads = (each for task in tasks for each in task.inputs)
            return sum(each.lag_from for each in reads if TopicPartition(each.topic, each.partition) == partition)

        until(lambda: {each: lag_from(each) for each in (prices, sales)} == local.ends())
        until(lambda: positions(cluster, name) == local.ends())
        (line,) = [line for line in shell("checkpoints", "priced.py", log, "--directory=job") if "price-0" in line]
        assert f"{sales} 2 of 2" in line
        local.stop()


def test_commands_name_what_an_open_transaction_hides(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One transaction, open in input, output and letters: ``topic read`` names it, as do Spark, redrive, rescale.

    A fork goes on, as the second job reads what was hidden once the transaction has ended.
    """
    monkeypatch.chdir(cluster.folder)
    shell, log = Shell(monkeypatch, capsys), f"--log={cluster.log}"
    text = (cluster.folder / "totals.py").read_text().replace("import Input", "import DeadLetter, Input")
    letters = f"{cluster.name}-letters"
    of_letters = f'errors=DeadLetter(Topic("{letters}", key=utf8, value=json(dict[str, int])))'
    text = text.replace("Input(orders)", f"Input(orders, {of_letters})")
    (cluster.folder / "totals.py").write_text(text)
    cluster.order({"ann": 1, "bob": 2})
    grete("run", "totals.py", log, cwd=cluster.folder)
    options = {"transactional.id": cluster.name, "transaction.timeout.ms": 600_000}  # open until the test ends it
    stranger = Producer({"bootstrap.servers": cluster.bootstrap, **options})
    stranger.init_transactions()
    stranger.begin_transaction()
    for topic in (cluster.orders, cluster.totals, letters):
        stranger.produce(topic, b'{"amount": 9}', b"eve", partition=0)
    assert stranger.flush(LIMIT_S) == 0

    def named(topic: str) -> str:
        return f"{topic}[0]: an open transaction begins at offset"

    topic_read(NamedJob("totals.py", None, LogAddress(cluster.log), Settings), cluster.totals)
    read = capsys.readouterr()
    assert sorted(line.split("\t")[2] for line in read.out.splitlines()) == ["ann", "bob"]
    assert named(cluster.totals) in read.err
    with pytest.warns(UserWarning, match=re.escape(named(cluster.totals))):  # what Spark's driver says of its plan
        TopicSource({"job": "totals.py", "log": cluster.log, "topic": cluster.totals}).reader(None).partitions()
    assert any(named(letters) in line for line in shell("dlq", "redrive", "totals.py", log))
    assert named(cluster.orders) in shell.error("rescale", "totals.py", "--partitions=4", log)
    second = text.replace(f'Job("{cluster.name}"', f'Job("{cluster.name}-second"')
    (cluster.folder / "second.py").write_text(second)
    assert shell("fork", "totals.py", "second.py", log) == ["total/sums\t2 entries"]
    stranger.commit_transaction()
    grete("run", "second.py", log, cwd=cluster.folder)
    assert shell("state", "get", "second.py", "sums", "eve", log) == ["9"]


def test_a_start_and_an_end_go_by_what_an_open_transaction_hides(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--until`` behind it is refused and names it; ``start="latest"`` names it, and begins once it has ended."""
    name, at = cluster.name, TopicPartition(f"{cluster.name}-prices", 0)
    cluster.make(at.topic, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    options = {"transactional.id": name, "transaction.timeout.ms": 600_000}  # it is open until the test ends it
    stranger = Producer({"bootstrap.servers": cluster.bootstrap, **options})
    stranger.init_transactions()
    send(producer, at, ann="1")
    stranger.begin_transaction()
    send(stranger, at, eve="0")
    send(producer, at, bob="2")
    file, said = cluster.folder / "latest.py", list[str]()
    file.write_text(LATEST.replace("NAME", name))
    job, where = load_job(str(file)), JobDirectory(cluster.folder / "job", address=LogAddress(cluster.log))

    def told(record: logging.LogRecord) -> bool:
        if not said:
            stranger.commit_transaction()
        said.append(record.getMessage())
        return True

    monkeypatch.setattr(logging.getLogger("grete.definition"), "filters", [told])
    named = f"{at}: an open transaction begins at offset 1 with key 'eve'"
    with closing(where.open_log()) as log:
        task, until = [(wiring, None) for wiring in all_wirings(job)], parse_until("0=3", job)
        with pytest.raises(ConfigError, match=re.escape(named)):
            cover(log, task, {}, until)
        assert not said
        prepare(job, log, where, Settings())
        assert [each.split(" (")[0] for each in said] == [f"waits: {named}"]
        assert cover(log, task, {}, until).resume == {at: 3}
        assert [wiring.starts for wiring in all_wirings(job)] == [{at: 3}]
