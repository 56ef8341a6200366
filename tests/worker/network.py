"""A job of two stages that reaches its broker by a line that a test may cut."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from grete.cli.commands.up import keep_running
from grete.cli.job_target import JobTarget
from grete.cli.output.progress import Screen
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.logs.kafka.read.reader import KafkaReader
from grete.logs.partition_reader import rows_left
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from tests.support.cut_line import CutLine
from tests.support.kafka_topics import create
from tests.verification.chaos.cluster import Cluster
from tests.worker.workers import handlers_kept

PAIRS = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
words = Topic("NAME-words", key=utf8, value=int64)

class Spread(Task):
    ticks = Input(Topic("NAME-ticks", key=utf8, value=utf8))
    out = Output(words)
    def process(self, record: Record[str, str]) -> None:
        for number in range(4):
            self.out.send(f"{record.value} {number}", 1)

class Count(Task):
    words = Input(words)
    total = Store("total", key=utf8, value=int64)
    out = Output(Topic("NAME-counts", key=utf8, value=int64))
    def process(self, record: Record[str, int]) -> None:
        n = self.total.get(record.key, 0) + 1
        self.total.put(record.key, n)
        self.out.send(record.key, n)

job = Job("NAME", stages=[Spread, Count], partitions=2, mode="MODE")
"""
# A user may set these: requests are given up, and transactions aborted, after seconds instead of a minute.
SOON = "socket.timeout.ms=2000\nsocket.connection.setup.timeout.ms=1000\nproducer.transaction.timeout.ms=3000\n"


DELIVERIES = [  # with its mode: each mode, and each delivery
    ("aligned", "transactional"),
    pytest.param("deterministic", "transactional", marks=pytest.mark.prove),
    ("deterministic", "sequenced"),
]


class Network(NamedTuple):
    """A broker, and the line by which a job reaches it."""

    cluster: Cluster
    line: CutLine

    def target(self, folder: Path, name: str, mode: str, settings: Settings) -> JobTarget:
        """Return a job of two stages in a folder; its topics are there."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        create(admin, NewTopic(f"{name}-ticks", 2), NewTopic(f"{name}-counts", 2))
        file, options = folder / f"{name}.py", folder / "kafka.conf"
        file.write_text(PAIRS.replace("NAME", name).replace("MODE", mode))
        options.write_text(SOON)
        address = LogAddress(f"kafka://127.0.0.1:{self.line.port}", options)
        return JobTarget(load_job(str(file)), str(file), JobDirectory(folder / "job", address=address), settings)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Cut the line, and heal it at the end: other tests have it, too."""
        self.line.cut()
        try:
            yield
        finally:
            self.line.heal()

    def totals(self, name: str) -> dict[str, list[int]]:
        """Return the totals that a reader of committed records finds in both output partitions, by key."""
        found = dict[str, list[int]]()
        with closing(KafkaReader.connect(self.cluster.bootstrap)) as log:
            for partition in (TopicPartition(f"{name}-counts", number) for number in range(2)):
                for row in rows_left(log, partition, 0, log.bounds(partition)[1]):
                    found.setdefault((row.key or b"").decode(), []).append(int.from_bytes(row.value or b"", "big"))
        return found


def is_ready(found: JobTarget, worker: int) -> bool:
    """Whether a worker has said that it works. A stop ends one that is still starting without a word of its own."""
    log = found.job_directory.worker_log(worker)
    return log.exists() and any(json.loads(line)["event"] == "ready" for line in log.read_text().splitlines())


def stopped_while_away(found: JobTarget, leave: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `grete up` with a broker that leaves once all work and something is committed; SIGTERM when it says so."""
    say, bar, left, waited = Screen.say, Screen.bar, list[int](), list[str]()

    def said(screen: Screen, text: str) -> None:
        say(screen, text)
        if left and "has not answered" in text:  # a loaded broker may be late before it leaves, too
            waited.append(text)
            os.kill(os.getpid(), signal.SIGTERM)

    def shown(screen: Screen, name: str, done: int, total: int, more: str = "") -> None:
        bar(screen, name, done, total, more)
        if done and not left and all(is_ready(found, number) for number in range(found.job.partitions)):
            left.append(done)
            leave()

    monkeypatch.setattr(Screen, "say", said)
    monkeypatch.setattr(Screen, "bar", shown)
    with handlers_kept():
        keep_running(found)
    assert len(waited) == 1
