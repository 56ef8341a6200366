"""A job whose only broker is frozen, killed and started again, or cut off: it waits, says so, and goes on; it stops."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from grete.cli.commands.up import keep_running
from grete.cli.job_target import JobTarget
from grete.cli.output.progress import Screen
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs import patience as waiting
from grete.logs.address import LogAddress
from grete.logs.kafka import KafkaLog, admin
from grete.logs.kafka.admin import Topics
from grete.logs.partition_reader import rows_left
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing.broker import Broker
from grete.testing.broker.settings import free_port
from grete.worker.supervisor.local_job import LocalJob
from tests.support.cut_line import CutLine
from tests.support.kafka_topics import create
from tests.verification.chaos.cluster import NOTICED_SOON, Cluster
from tests.worker.network import DELIVERIES, Network, stopped_while_away
from tests.worker.workers import LIMIT_S, handlers_kept

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # brokers of its own, and workers that start again

COUNT = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
ticks = Topic("NAME-ticks", key=utf8, value=utf8)

class Count(Task):
    ticks = Input(ticks)
    total = Store("total", key=utf8, value=int64)
    out = Output(Topic("NAME-counts", key=utf8, value=int64))
    def process(self, record: Record[str, str]) -> None:
        n = self.total.get(record.value, 0) + 1
        self.total.put(record.value, n)
        self.out.send(record.value, n)

job = Job("NAME", stages=[Count])
"""


@pytest.fixture(scope="module")
def cluster(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a broker that the tests may kill; the other fixture says whether jars can be had here."""
    del kafka_broker
    with Cluster(tmp_path_factory.mktemp("cluster") / "kafka", changed=NOTICED_SOON) as made:
        yield made


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first line come soon."""
    monkeypatch.setattr(waiting, "FIRST_S", 0.5)


def target(cluster: Cluster, folder: Path, name: str, settings: Settings, first: str = "") -> JobTarget:
    """Return the job, under a name of its own, in a folder; its input is there. ``first``: lines of its module."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, NewTopic(f"{name}-ticks", 1))
    file = folder / f"{name}.py"
    file.write_text(first + COUNT.replace("NAME", name))
    address = LogAddress(f"kafka://{cluster.bootstrap}")
    return JobTarget(load_job(str(file)), str(file), JobDirectory(folder / "job", address=address), settings)


def tick(cluster: Cluster, name: str, count: int) -> None:
    """Write inputs."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"})
    for number in range(count):
        producer.produce(f"{name}-ticks", b"tick", b"key %d" % number)
    assert producer.flush(LIMIT_S) == 0


LINES = 4  # that say, one a second here, that nothing answers: transactions have timed out, and connections are lost


@pytest.fixture(scope="module")
def network(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Yield a broker that the tests may cut off."""
    del kafka_broker  # asked for because it says whether jars can be had here
    port = free_port()
    with (
        Cluster(tmp_path_factory.mktemp("network") / "kafka", behind=[port]) as cluster,
        CutLine(port, cluster.outside[0]) as line,
    ):
        yield Network(cluster, line)


def until(local: LocalJob, condition: Callable[[], bool]) -> None:
    """Do what `grete up` does until the condition holds: look after the workers, and ask where the inputs end."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, (local.supervisor.workers, local.supervisor.news)
        local.poll(50)
        local.ends()


@pytest.mark.usefixtures("soon")
def test_a_broker_that_is_away_costs_only_time(cluster: Cluster, tmp_path: Path) -> None:
    """Frozen, then killed, each for longer than workers wait, and more often than they may crash: each input once.

    The job's module switches all logging off, which is not to hide from the supervisor why a worker has ended.
    """
    settings = Settings(
        checkpoint_interval_ms=50, send_timeout_ms=500, restarts_max=1, restart_backoff_ms=10, restart_backoff_ms_max=50
    )
    found = target(cluster, tmp_path, "away", settings, "import logging\nlogging.disable(logging.CRITICAL)\n")
    said = list[str]()
    with LocalJob(
        found.job,
        found.reference,
        found.job_directory,
        settings,
        patience=Patience(say=said.append),
    ) as local:
        worker, inputs = local.supervisor.workers[0], TopicPartition("away-ticks", 0)

        def away(done: int, leave: Callable[[int], None], come_back: Callable[[int], None]) -> None:
            tick(cluster, "away", 100)
            until(local, lambda: local.committed().get(inputs, 0) >= done)
            starts, lines = worker.starts, len(said)
            leave(0)
            until(local, lambda: worker.starts >= starts + 2)
            assert worker.restarts.crashes <= settings.restarts_max
            assert f"{cluster.bootstrap} has not answered for" in said[lines]
            come_back(0)
            until(local, lambda: "answers again" in said[-1])

        away(100, cluster.freeze, cluster.thaw)
        away(200, cluster.kill, cluster.start)
        tick(cluster, "away", 100)
        until(local, lambda: local.drained(local.ends()))
        out = TopicPartition("away-counts", 0)
        rows = rows_left(local.log, out, 0, local.log.bounds(out)[1])
        assert [int.from_bytes(row.value or b"", "big") for row in rows] == list(range(1, 301))
        local.stop()
        assert worker.exit_code == 0


def test_a_trim_while_the_broker_is_away_is_made_up_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is given up in the client, which ends nothing: the next commit trims once the broker is back."""
    partition = TopicPartition("trimmed", 0)
    with closing(KafkaLog(cluster.bootstrap)) as log:
        log.create_topic("trimmed", 1)
        for number in range(4):
            log.send(0, number, partition, b"x", sync=True)
            while not log.poll():
                log.wait(1_000)
        log.trim(partition, 1)
        assert log.bounds(partition) == (1, 4)
        cluster.freeze(0)
        monkeypatch.setattr(admin, "ANSWER_S_MAX", 0.5)
        while "trimming trimmed[0] failed" not in caplog.text:
            log.trim(partition, 2)
            assert log.poll() == []
            log.wait(10)
        cluster.thaw(0)
        while log.bounds(partition)[0] != 3:
            log.trim(partition, 3)
            assert log.poll() == []


@pytest.mark.parametrize(("mode", "delivery"), DELIVERIES)
@pytest.mark.usefixtures("soon")
def test_a_network_that_is_cut_costs_only_time(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, delivery: Any
) -> None:
    """Under load, for longer than requests live: nothing lost or twice; but for a caught transaction, no crash."""
    monkeypatch.setattr(waiting, "EVERY_S", 1.0)
    ends = int(delivery == "transactional")  # of a worker: a transaction that the cut catches may outlive its time-out
    settings = Settings(checkpoint_interval_ms=50, restarts_max=1, output_delivery=delivery)
    name = f"cut-{mode}-{delivery}"
    found, said, news = network.target(tmp_path, name, mode, settings), list[str](), list[str]()
    with LocalJob(
        found.job, found.reference, found.job_directory, settings, patience=Patience(say=said.append)
    ) as local:
        inputs = [TopicPartition(f"{name}-ticks", number) for number in range(2)]

        def committed(count: int) -> bool:
            news.extend(local.supervisor.news)
            local.supervisor.news.clear()
            assert all(worker.restarts.crashes <= ends for worker in local.supervisor.workers.values()), news
            return sum(local.committed().get(each, 0) for each in inputs) >= count

        tick(network.cluster, name, 100)
        until(local, lambda: committed(100))
        said.clear()  # a busy broker may have been slow
        with network.away():
            tick(network.cluster, name, 100)
            away = "has not answered for"
            until(local, lambda: not committed(1 << 30) and sum(away in line for line in said) >= LINES)
        until(local, lambda: committed(200) and "answers again" in said[-1])
        until(local, lambda: local.drained(local.ends()))
        assert network.totals(name) == {f"tick {number}": list(range(1, 201)) for number in range(4)}
        local.stop()
        assert [worker.exit_code for worker in local.supervisor.workers.values()] == [0, 0]


@pytest.mark.usefixtures("soon")
def test_a_stop_while_no_broker_answers_takes_its_time_out(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM to `grete up` when it has said that the broker is away: it and its workers end, and that is no error."""
    found = target(cluster, tmp_path, "stopped", Settings(shutdown_timeout_ms=500))
    tick(cluster, "stopped", 1)
    try:
        stopped_while_away(found, lambda: cluster.freeze(0), monkeypatch)
    finally:
        cluster.thaw(0)
    assert capsys.readouterr().out.splitlines()[-1] == "stopping …"


@pytest.mark.parametrize("mode", ["aligned", pytest.param("deterministic", marks=pytest.mark.prove)])
@pytest.mark.usefixtures("soon")
def test_a_stop_while_the_network_is_cut_takes_its_time_out(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    """The same with two workers of two stages that are cut off while they work: each ends with 0, none is killed.

    With librdkafka's own time-outs, which are longer: nothing waits for what is in flight.
    """
    name = f"left-{mode}"
    found = network.target(tmp_path, name, mode, Settings(shutdown_timeout_ms=500))
    (tmp_path / "kafka.conf").write_text("")
    tick(network.cluster, name, 1_000)
    try:
        stopped_while_away(found, network.line.cut, monkeypatch)
    finally:
        network.line.heal()
    assert capsys.readouterr().out.splitlines()[-1] == "stopping …"
    for number in range(2):  # workers
        lines = [json.loads(line) for line in found.job_directory.worker_log(number).read_text().splitlines()]
        assert [line["code"] for line in lines if line["event"] == "worker done"] == [0]


@pytest.mark.parametrize("when", ["before it starts", "while it makes topics"])
@pytest.mark.usefixtures("soon")
def test_a_member_that_starts_waits_for_the_network(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    """After a crash of its machine, or cut off in the middle of its start: it says so, and is a member once it can."""
    monkeypatch.setattr(waiting, "CONNECT_S_MAX", 0.2)  # what a first start has for a wrong address
    monkeypatch.setattr(admin, "ANSWER_S_MAX", 1.0)
    found = network.target(tmp_path, when.replace(" ", "-"), "aligned", Settings())
    make, say, cuts = Topics.create, Screen.say, list[str]()

    def created(topics: Topics, topic: str, partitions: int, config: dict[str, str]) -> None:
        if not cuts:
            cuts.append(topic)
            network.line.cut()
        make(topics, topic, partitions, config)

    def said(screen: Screen, text: str) -> None:
        say(screen, text)
        if "has not answered" in text:
            network.line.heal()
        if "a member for 2 partitions" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Topics, "create", created)
    monkeypatch.setattr(Screen, "say", said)
    if when == "before it starts":
        found.job_directory.member_file.write_text("01")
        cuts.append("all")
        network.line.cut()
    try:
        with handlers_kept():
            keep_running(found)
    finally:
        network.line.heal()
    shown = capsys.readouterr().out
    assert len(cuts) == 1
    assert shown.index("has not answered") < shown.index("answers again") < shown.index("a member for")


UP = "import atexit; from grete.cli import command_line; atexit.register(print, 'at exit'); command_line()"


def test_a_command_that_is_stopped_while_the_network_is_cut_waits_for_no_client(
    network: Network, tmp_path: Path
) -> None:
    """The interpreter's own end is left out: it took two seconds for what librdkafka's clients had in flight."""
    found = network.target(tmp_path, "ended", "aligned", Settings())
    (tmp_path / "kafka.conf").write_text("")
    job, log = str(tmp_path / "ended.py"), found.job_directory.address.url
    options = "--log", log, "--kafka-config", str(tmp_path / "kafka.conf"), "--set=shutdown_timeout_ms=500"
    command = [sys.executable, "-c", UP, "up", job, "--directory", str(tmp_path / "job"), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as ran:
        assert ran.stdout is not None
        try:
            assert "a member for 2 partitions in" in ran.stdout.readline()
            network.line.cut()
            while "has not answered" not in ran.stdout.readline():
                assert ran.poll() is None
            ran.terminate()
            rest = ran.stdout.read()
        finally:
            network.line.heal()
            ran.kill()
    assert ran.returncode == 0
    assert "stopping …" in rest
    assert "at exit" not in rest


def test_a_request_to_the_groups_coordinator_outlives_an_outage(cluster: Cluster) -> None:
    """One that timed out while the broker was away made librdkafka abort the process when that was back."""
    create(AdminClient({"bootstrap.servers": cluster.bootstrap}), NewTopic("positions", 1))
    command = [sys.executable, "-m", "tests.worker.asking_process", cluster.bootstrap, "positions"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as asking:
        assert asking.stdin is not None
        assert asking.stdout is not None
        try:
            assert asking.stdout.readline().strip().isdigit()
            cluster.kill(0)
            with pytest.raises(subprocess.TimeoutExpired):
                asking.wait(2)  # for longer than it waits for an answer
            cluster.start(0)
            assert asking.stdout.readline().strip().isdigit(), asking.poll()
            asking.stdin.close()
            asking.stdout.read()
            assert asking.wait(LIMIT_S) == 0
        finally:
            asking.kill()
