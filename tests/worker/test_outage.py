"""A job whose only broker is frozen, killed and started again: it waits, says so, and goes on; a stop still stops."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from framework.cli.commands.up import up
from framework.cli.job_target import JobTarget
from framework.cli.progress import Screen
from framework.job.directory import JobDirectory
from framework.job.loader import load_job
from framework.logs import patience as waiting
from framework.logs.address import LogAddress
from framework.logs.partition_reader import rows_left
from framework.logs.patience import Patience
from framework.settings import Settings
from framework.testing.broker import Broker
from framework.worker.local_job import LocalJob
from protocol.ids import TopicPartition
from tests.verification.chaos.cluster import NOTICED_SOON, Cluster
from tests.worker.workers import LIMIT_S

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]  # brokers of its own, and workers that start again

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
    """Yield a broker that the tests may kill."""
    del kafka_broker  # asked for because it says whether jars can be had here
    with Cluster(tmp_path_factory.mktemp("cluster") / "kafka", changed=NOTICED_SOON) as made:
        yield made


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first line come soon."""
    monkeypatch.setattr(waiting, "FIRST_S", 0.5)


def target(cluster: Cluster, folder: Path, name: str, settings: Settings) -> JobTarget:
    """Return the job, under a name of its own, in a folder; its input is there."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(f"{name}-ticks", 1)])[f"{name}-ticks"].result(LIMIT_S)
    file = folder / f"{name}.py"
    file.write_text(COUNT.replace("NAME", name))
    address = LogAddress(f"kafka://{cluster.bootstrap}")
    return JobTarget(load_job(str(file)), str(file), JobDirectory(folder / "job", address=address), settings)


def tick(cluster: Cluster, name: str, count: int) -> None:
    """Write inputs."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(count):
        producer.produce(f"{name}-ticks", b"tick", b"key")
    assert producer.flush(LIMIT_S) == 0


def until(local: LocalJob, condition: Callable[[], bool]) -> None:
    """Do what `grete up` does until the condition holds: look after the workers, and ask where the inputs end."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, (local.supervisor.workers, local.supervisor.news)
        local.poll(50)
        local.ends()


@pytest.mark.usefixtures("soon")
def test_a_broker_that_is_away_costs_only_time(cluster: Cluster, tmp_path: Path) -> None:
    """Frozen, then killed, each for longer than workers wait, and more often than they may crash: each input once."""
    settings = Settings(
        checkpoint_interval_ms=50, send_timeout_ms=500, restarts_max=1, restart_backoff_ms=10, restart_backoff_ms_max=50
    )
    found, said = target(cluster, tmp_path, "away", settings), list[str]()
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
            assert worker.crashes <= settings.restarts_max
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


@pytest.mark.usefixtures("soon")
def test_a_stop_while_no_broker_answers_takes_its_time_out(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM to `grete up` when it has said that the broker is away: it and its workers end, and that is no error."""
    settings = Settings(shutdown_timeout_ms=500)
    found = target(cluster, tmp_path, "stopped", settings)
    tick(cluster, "stopped", 1)
    say, waited = Screen.say, list[str]()

    def said(screen: Screen, text: str) -> None:
        say(screen, text)
        if "Ctrl-C stops them" in text:
            cluster.freeze(0)
        elif "has not answered" in text:
            waited.append(text)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Screen, "say", said)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        up(found)
    finally:
        cluster.thaw(0)
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    assert len(waited) == 1
    assert "stopping …" in capsys.readouterr().out
