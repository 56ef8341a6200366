"""Tasks that end by errors of their own while the others of their process go on, in real processes under load."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.core.supervision.assignment import HostedShare, HostedState
from grete.errors import Fenced, Halted
from grete.halts import HaltCode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY, LogAddress
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskState
from grete.settings import Settings
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.worker.test_supervisor import poll_until, running
from tests.worker.workers import WorkerUnderTest

JOB = """
from pathlib import Path
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

words = Topic("NAME-words", key=utf8, value=utf8)
totals = Topic("NAME-totals", key=utf8, value=int64)

class Split(Task):
    lines = Input(Topic("NAME-lines", key=utf8, value=utf8))
    out = Output(words)
    def process(self, record: Record[str, str]) -> None:
        if record.value == "poison" and Path("BROKEN").exists():
            raise RuntimeError("it cannot be processed yet")
        for word in record.value.split():
            self.out.send(word, word)

class Count(Task):
    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(totals)
    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, count)
        self.out.send(record.key, count)

job = Job("NAME", stages=[Split, Count], partitions=2)
"""
SETTINGS = Settings(checkpoint_interval_ms=50, restarts_max=1000, restart_backoff_ms=10, restart_backoff_ms_max=50)
LOAD = 40  # records of a partition at a time


class Load:
    """A job with all tasks in one process, whose first partition has a record that fails while a file is there."""

    def __init__(self, local: LocalJob, name: str, broken: Path) -> None:
        self.local, self.name, self.broken = local, name, broken
        (self.worker,) = local.supervisor.workers.values()
        self.said = Counter[str]()

    def say(self) -> None:
        """Append some records to each partition, and to the first one that fails."""
        for partition in range(2):
            texts = [f"a b w{number} p{partition}" for number in range(LOAD)] + ["poison"] * (partition == 0)
            at = TopicPartition(f"{self.name}-lines", partition)
            self.local.metadata.produce_with_meta([ExternalRecord(at, b"k", text.encode(), 1) for text in texts], {})
            self.said.update(word for text in texts for word in text.split())

    def position(self, partition: int) -> int:
        """Return the offset up to which a partition is committed by its first task, as the worker says."""
        task = self.worker.reports.tasks.get(f"split-{partition}")
        return 0 if task is None else sum(each.offset for each in task.inputs if each.topic == f"{self.name}-lines")

    def second_is_through(self) -> bool:
        """Whether the second partition is committed to its end."""
        return self.position(1) >= self.local.log.bounds(TopicPartition(f"{self.name}-lines", 1))[1]

    def goes_on(self, ends: int) -> None:
        """Wait for some more ends of the first partition's task, while the other one takes all that comes."""
        ends += self.worker.restarts.counts["task error"]
        for _ in range(3):
            self.say()
            poll_until(self.local, self.second_is_through)
        poll_until(self.local, lambda: self.worker.restarts.counts["task error"] >= ends)

    def sent(self) -> Counter[tuple[str, int]]:
        """Return the number of times each (word, total) was sent."""
        rows = [row for partition in range(2) for row in self._read(TopicPartition(f"{self.name}-totals", partition))]
        return Counter((key.decode(), int.from_bytes(value, "big")) for key, value in rows)

    def _read(self, partition: TopicPartition) -> Iterator[tuple[bytes, bytes]]:
        at, end = self.local.log.bounds(partition)
        while at < end and (rows := self.local.log.read(partition, at, 1 << 20)):
            yield from ((row.key or b"", row.value or b"") for row in rows)
            at = rows[-1].offset + 1


def check(name: str, directory: Path, address: LogAddress = IN_DIRECTORY) -> None:
    """A task fails on and on, its process is killed meanwhile, and all the others go on: each word counts once."""
    path, broken = directory / "alone.py", directory / "broken"
    path.write_text(JOB.replace("NAME", name).replace("BROKEN", str(broken)))
    broken.touch()
    job_directory = JobDirectory(directory / "job", address=address)
    with LocalJob(
        load_job(str(path)),
        str(path),
        job_directory,
        SETTINGS,
        inputs=OutsideInputs([f"{name}-lines"]),
        share=HostedShare(1),
    ) as local:
        load = Load(local, name, broken)
        worker = load.worker
        load.goes_on(3)
        process = local.supervisor.process(0)
        assert process is not None
        assert worker.starts == 1  # the process has gone on
        assert "it cannot be processed yet" in str(worker.reports.tasks["split-0"].end)
        assert "split-0 ended (task error)" in local.supervisor.news[0]
        os.kill(process.pid, signal.SIGKILL)
        load.goes_on(3)
        assert (worker.starts, load.position(0)) == (2, 0)
        broken.unlink()
        poll_until(local, lambda: local.drained(local.ends()))
        assert worker.starts == 2
        poll_until(local, lambda: worker.reports.tasks["split-0"].end is None)  # it has committed again
        assert load.sent() == Counter((word, n + 1) for word, count in load.said.items() for n in range(count))
        local.stop()


def test_a_task_that_fails_ends_alone(tmp_path: Path) -> None:
    """On the embedded log."""
    check("alone", tmp_path)


@pytest.mark.kafka
def test_a_task_that_fails_ends_alone_on_kafka(tmp_path: Path, kafka_broker: Broker) -> None:
    """On Kafka the task's next life takes over the transactional id of the changelog and the outputs."""
    check("alone", tmp_path, LogAddress(f"kafka://{kafka_broker.bootstrap}"))


def test_a_task_that_always_fails_halts_the_job(tmp_path: Path) -> None:
    """After restarts_max ends without progress between: the others stop as they were asked to, then the job halts."""
    path, broken = tmp_path / "alone.py", tmp_path / "broken"
    path.write_text(JOB.replace("NAME", "alone").replace("BROKEN", str(broken)))
    broken.touch()
    settings = Settings(checkpoint_interval_ms=50, restarts_max=2, restart_backoff_ms=1)
    with LocalJob(
        load_job(str(path)), str(path), JobDirectory(tmp_path / "job"), settings, share=HostedShare(1)
    ) as local:
        load = Load(local, "alone", broken)
        poll_until(local, lambda: running(local))
        load.say()
        with pytest.raises(Halted, match=r"split-0 ended 3 times without progress between: .* be processed") as halted:
            poll_until(local, lambda: False)
        assert (halted.value.code, halted.value.task) == (HaltCode.GIVEN_UP, "split-0")
        assert (load.worker.starts, load.worker.restarts.counts) == (
            1,
            {"task error": 3},
        )  # the last one ended the process
        assert load.worker.restarts.last is not None
        assert "raise RuntimeError" in load.worker.restarts.last.traceback


READING = """
from grete import Input, Job, Record, Store, Task, Topic, utf8

class Keep(Task):
    lines = Input(Topic("kept-lines", key=utf8, value=utf8))
    kept = Store("kept", key=utf8, value=utf8)
    def process(self, record: Record[str, str]) -> None:
        for _ in self.kept.all():  # reads what is on the disk
            pass
        self.kept.put(record.value, "x" * 500)

job = Job("kept", stages=[Keep], partitions=2)
"""


def test_a_task_whose_store_is_damaged_ends_alone(tmp_path: Path) -> None:
    """Its store is wiped and restored; the error that told it holds no part of the database open."""
    path, job_directory = tmp_path / "kept.py", JobDirectory(tmp_path / "job")
    path.write_text(READING)

    def feed(first: int, last: int) -> None:
        with LocalJob(
            load_job(str(path)),
            str(path),
            job_directory,
            SETTINGS,
            inputs=OutsideInputs(["kept-lines"]),
            share=HostedShare(1),
        ) as local:
            (worker,) = local.supervisor.workers.values()
            for partition in range(2):
                at = TopicPartition("kept-lines", partition)
                rows = [ExternalRecord(at, b"k", b"%d" % number, 1) for number in range(first, last)]
                local.metadata.produce_with_meta(rows, {})
            poll_until(local, lambda: local.drained(local.ends()))
            ended.update(worker.restarts.counts)
            assert worker.starts == 1
            local.stop()

    ended = Counter[str]()
    feed(0, 1_000)
    feed(1_000, 1_010)  # a start writes what was in RocksDB's own log into files
    assert not ended
    file = max(job_directory.state("keep-0").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    for place in range(len(data) // 4, len(data) // 2, 100):  # among the values
        data[place] ^= 1
    file.write_bytes(data)
    feed(1_010, 1_020)
    assert ended == {"store corrupted": 1}


def test_a_fenced_task_takes_those_of_its_partition_with_it(tmp_path: Path) -> None:
    """One that waits for the others would not notice, as after a backfill, when nothing comes any more."""
    path = tmp_path / "alone.py"
    path.write_text(JOB.replace("NAME", "alone").replace("BROKEN", str(tmp_path / "broken")))
    job_directory = JobDirectory(tmp_path / "job")
    with LocalJob(load_job(str(path)), str(path), job_directory, SETTINGS, share=HostedShare(1)) as local:
        (worker,) = local.supervisor.workers.values()
        poll_until(local, lambda: running(local))
        stages, options = ("split", "count"), ("--stage=count", f"--state-directory={tmp_path / 'other'}")
        with WorkerUnderTest(tmp_path / "job", *options, reference=str(path), task="count-0") as thief:
            poll_until(
                local, lambda: {worker.reports.tasks[f"{stage}-0"].status for stage in stages} == {TaskState.FENCED}
            )
            assert local.supervisor.hosted() == {0: HostedState.FENCED, 1: HostedState.RUNNING}
            with pytest.raises(Fenced, match="another process has taken it"):
                local.require_all()
            thief.running()
        assert worker.starts == 1
