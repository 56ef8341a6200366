"""The counts of `grete run` and `grete up`: records of this run, on a log whose offsets are not all records."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from grete.execution.engine.task_inputs import InputHoles
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob
from tests.support import waiting
from tests.support.intervals import just_begun_ms
from tests.support.kafka_topics import create
from tests.worker.workers import LIMIT_S

COUNT = """
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8

class Count(Task):
    ticks = Input(Topic("NAME-ticks", key=utf8, value=utf8))
    total = Store("total", key=utf8, value=int64)
    def process(self, record: Record[str, str]) -> None:
        self.total.put(record.value, self.total.get(record.value, 0) + 1)

job = Job("NAME", stages=[Count], mode="MODE")
"""
INPUT = TopicPartition("ticks", 0)


class Ticks:
    """A topic, and a producer that writes to it in transactions of three records."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})  # has to live until it has answered
        create(admin, NewTopic(topic, 1))
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
        self._producer.init_transactions()

    def write(self, transactions: int) -> None:
        """Commit some transactions, and abort one between any two."""
        for number in range(2 * transactions - 1):
            self._producer.begin_transaction()
            for _ in range(3):
                self._producer.produce(self._topic, b"tick", b"key")
            if number % 2:
                self._producer.flush(LIMIT_S)
                self._producer.abort_transaction()
            else:
                self._producer.commit_transaction()


def until(local: LocalJob, condition: Callable[[], bool]) -> None:
    """Look after the workers until the condition holds."""
    waiting.until(condition, step=lambda: local.poll(20), saw=lambda: (local.supervisor.workers, local.supervisor.news))


@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_ends_of_transactions_are_not_counted(kafka_broker: Broker, tmp_path: Path, mode: str) -> None:
    """Nor what was taken back, also behind a crash: of some of the records of this run, all at the end."""
    name = f"counted{os.urandom(4).hex()}"
    ticks, file = Ticks(kafka_broker.bootstrap, f"{name}-ticks"), tmp_path / f"{name}.py"
    file.write_text(COUNT.replace("NAME", name).replace("MODE", mode))
    address = LogAddress(f"kafka://{kafka_broker.bootstrap}")

    def open_job() -> LocalJob:
        directory = JobDirectory(tmp_path / "job", address=address)
        return LocalJob(
            load_job(str(file)), str(file), directory, Settings(checkpoint_interval_ms=20, batch_bytes_max=100)
        )

    def all_of(local: LocalJob, records: int) -> bool:
        """Whether both counts are right once nothing moves."""
        shown = local.records_through(local.ends())
        return local.drained(local.ends()) and (*shown, local.records_committed()) == (records, records, records)

    ticks.write(4)
    with open_job() as local:
        assert local.records_through(local.ends())[0] == 0
        until(local, lambda: all_of(local, 12))
        ticks.write(30)
        until(local, lambda: all_of(local, 102))
        local.supervisor.kill(0)
        ticks.write(1)
        until(local, lambda: all_of(local, 105))
        local.stop()
    ticks.write(2)
    with open_job() as local:
        until(local, lambda: all_of(local, 6))
        local.stop()


def test_outputs_that_are_out_are_counted_before_their_checkpoint(tmp_path: Path) -> None:
    """The screen of a deterministic job said "processed 0 of 40" while all its outputs were out."""
    job = "tests/execution/deterministic/words.py"
    directory = JobDirectory(tmp_path / "job")
    with LocalJob(load_job(job), job, directory, Settings(checkpoint_interval_ms=just_begun_ms())) as local:
        until(local, lambda: all(each > 0 for each in local.checkpoint_ids().values()))  # the one that has just begun
        with closing(directory.open_log(create=False)) as log:
            places = [TopicPartition("lines", number % 2) for number in range(40)]
            log.produce(0, 0, [ExternalRecord(place, None, b"to be or", 1) for place in places])
            log.poll()
        until(local, lambda: local.reports.released == 3 * 40)
        assert local.records_through(local.ends()) == (0, 40)
        local.supervisor.kill(0)
        until(
            local, lambda: local.supervisor.workers[0].starts == 2 and local.supervisor.workers[0].reports.tasks != {}
        )
        assert local.reports.released >= 3 * 40
        local.stop()


def rows(*offsets: int) -> list[LogRow]:
    """Return rows at these offsets."""
    return [LogRow(offset, 0, 0, None, b"x", None) for offset in offsets]


def test_holes_belong_to_the_commit_that_passes_them() -> None:
    """Holes read after a commit are not yet part of it; a hole that a rollback reads again counts once."""
    holes = InputHoles()
    holes.read(INPUT, 5, rows(5, 6))
    assert holes.committed(0).get(INPUT, 0) == 0
    holes.froze(10)
    holes.read(INPUT, 5, rows(8))  # behind 7, though where the task has come is not known to have changed
    holes.read(INPUT, 5, rows(11))  # behind 9 and 10
    assert holes.committed(10).get(INPUT, 0) == 0
    holes.rolled_back()
    holes.read(INPUT, 7, rows(8))
    holes.froze(20)
    holes.froze(30)
    assert [holes.committed(each)[INPUT] for each in (10, 20, 30)] == [0, 1, 1]
