"""A sink on a real broker, in real processes: a plain consumer sees each output once, whatever happens (S1)."""

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from grete.logs.kafka import KafkaLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from tests.logs.outputs import visible
from tests.sinks.kafka_worker import POINTS, SENT

pytestmark = pytest.mark.kafka
LIMIT_S = 180.0
WORDS = "so much for that"
TIMEOUT_MS = 1_000  # of transactions, where a test waits for it
WORKER = Path(__file__).with_name("kafka_worker.py")

JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, utf8

class Count(Task):
    lines = Input(Topic("{name}.in", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=utf8)
    out = Output(Topic("{name}.out", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            n = int(self.counts.get(word, "0")) + 1
            self.counts.put(word, str(n))
            self.out.send(word, f"{{word}} {{n}}", partition=record.partition)

job = Job("{name}", stages=[Count], partitions=2)
"""


class Job:
    """A job of one stage on a broker: counts words, and sends every new count to ``out``."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker, self.directory = broker, directory
        self.name = f"t{os.urandom(6).hex()}"
        self.file = directory / "job.py"
        self.file.write_text(JOB.format(name=self.name))
        self.log = KafkaLog(broker.bootstrap)
        for topic in ("in", "out"):
            self.log.create_topic(f"{self.name}.{topic}", 2, plain=True)
        self.said = [0, 0]

    def say(self, count: int, partition: int = 0) -> None:
        """Append that many times the same words, and wait until they are there."""
        now_ms = time.time_ns() // 1_000_000  # a plain topic deletes what is older than a week
        record = ExternalRecord(TopicPartition(f"{self.name}.in", partition), None, WORDS.encode(), now_ms)
        self.log.produce(0, 0, [record] * count)
        while not self.log.poll():
            self.log.wait(1_000)
        self.said[partition] += count

    def outputs(self, partition: int = 0) -> dict[str, list[int]]:
        """Return the outputs that a plain consumer sees now: the counts of each word, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for value in visible(self.broker, TopicPartition(f"{self.name}.out", partition)):
            word, count = value.decode().split()
            found[word].append(int(count))
        return found

    def wanted(self, partition: int = 0) -> dict[str, list[int]]:
        """Return the outputs that it should see: each count once."""
        return {word: list(range(1, self.said[partition] + 1)) for word in WORDS.split()}

    def settles(self, partition: int = 0) -> dict[str, list[int]]:
        """Return the outputs once enough of them are seen."""
        deadline, wanted = time.monotonic() + LIMIT_S, sum(map(len, self.wanted(partition).values()))
        while sum(map(len, (found := self.outputs(partition)).values())) < wanted and time.monotonic() < deadline:
            time.sleep(0.05)
        return found


class Worker:
    """A worker of the job; its process is killed at the end of the block whatever it does."""

    def __init__(
        self,
        job: Job,
        point: str = "",
        number: signal.Signals = signal.SIGKILL,
        *,
        partition: int = 0,
        place: str = "",
        options: str = "",
    ) -> None:
        config = job.directory / f"options{time.monotonic_ns()}"
        config.write_text(options)
        self.log = config.with_suffix(".log")
        arguments = [str(job.file), str(partition), str(job.directory / (place or f"place{partition}"))]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, WORKER, *arguments, job.broker.bootstrap, config, point, str(int(number))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": str(WORKER.parents[2])},
            )

    def ends(self) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(LIMIT_S)

    def stops(self) -> None:
        """Wait until it has stopped itself."""
        found = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert found is not None
        assert found.si_code == os.CLD_STOPPED, self.log.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def job(kafka_broker: Broker, tmp_path: Path) -> Iterator[Job]:
    """A job that no other test runs."""
    made = Job(kafka_broker, tmp_path)
    yield made
    made.log.close()


def test_killed_anywhere_around_a_transaction(job: Job) -> None:
    """S1, C4: each output once, though the process dies before, in and right after its transaction, again and again.

    In the end the state is gone, too: the changelog restores it, past what was aborted.
    """
    for point in POINTS:
        job.say(30)
        with Worker(job, point) as worker:
            assert worker.ends() == -signal.SIGKILL, (point, worker.log.read_text())
    job.say(30)
    with Worker(job, place="elsewhere") as worker:
        assert job.settles() == job.wanted()
        worker.process.terminate()
        assert worker.ends() == 0, worker.log.read_text()
    assert job.outputs() == job.wanted()


def test_a_zombie_with_an_expired_transaction(job: Job) -> None:
    """1.8 C4, C5: stopped in its transaction, which times out; a process with a successor exits 3, one without goes on.

    Nothing that the first still sends is seen; the second finds that its transaction is not there, and repeats it.
    """
    options = f"producer.transaction.timeout.ms={TIMEOUT_MS}"
    for partition in (0, 1):
        job.say(20, partition)
    with (
        Worker(job, SENT, signal.SIGSTOP, options=options) as replaced,
        Worker(job, SENT, signal.SIGSTOP, partition=1, options=options) as alone,
    ):
        for zombie in (replaced, alone):
            zombie.stops()
        assert [job.outputs(0), job.outputs(1)] == [{}, {}]  # waits for the end of their transactions
        with Worker(job, place="elsewhere") as successor:
            assert job.settles() == job.wanted()
            for zombie in (replaced, alone):
                zombie.process.send_signal(signal.SIGCONT)
            assert replaced.ends() == 3, replaced.log.read_text()
            job.say(20)
            assert job.settles() == job.wanted()
            assert successor.process.poll() is None
            assert job.settles(1) == job.wanted(1)
            assert alone.process.poll() is None
    assert [job.outputs(0), job.outputs(1)] == [job.wanted(0), job.wanted(1)]


def test_the_older_of_two_workers_gives_up(job: Job) -> None:
    """C5: a second worker of a partition takes it over; the first one exits 3, though it was not idle."""
    job.say(20)
    with Worker(job) as older:
        assert job.settles() == job.wanted()
        with Worker(job, place="elsewhere") as newer:
            job.say(20)
            assert older.ends() == 3, older.log.read_text()
            job.say(20)
            assert job.settles() == job.wanted()
            assert newer.process.poll() is None
