"""A changelog on Kafka that was emptied under its id, as by a broker that got a new disk: its task halts."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from grete import Input, Job, Output, Record, Task, Topic, utf8
from grete.core.graph.task_topology import wire
from grete.errors import Halted
from grete.halts import HaltCode
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.address import LogAddress
from grete.logs.kafka import KafkaLog
from grete.protocol.control import encode_rollback_marker
from grete.protocol.ids import RollbackEntry
from grete.protocol.report import TaskState, WorkerReport
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.testing.broker import Broker
from grete.worker.process.worker import OpenedLog, Worker

pytestmark = pytest.mark.kafka


def two_stages(topic: str) -> Job:
    """Return a job that passes records on."""
    between = Topic("between", key=utf8, value=utf8)

    class First(Task):
        lines = Input(Topic(topic, key=utf8, value=utf8))
        out = Output(between)

        def process(self, record: Record[str, str]) -> None:
            self.out.send(record.key, record.value)

    class Last(Task):
        passed = Input(between)

        def process(self, record: Record[str, str]) -> None:
            pass

    return Job(f"job-{topic}", stages=[First, Last])


def work(kafka_broker: Broker, job: Job, directory: Path) -> None:
    """Run a worker until a task of it halts, then stop it."""
    job_directory = JobDirectory(directory, address=LogAddress(f"kafka://{kafka_broker.bootstrap}"))
    with closing(job_directory.open_log()) as log:
        prepare(job, log, job_directory, Settings())
        worker = Worker(job, [0], OpenedLog(log), job_directory, Settings())

        def stop_at_a_halt(report: WorkerReport) -> None:
            if any(task.status is TaskState.HALTED for task in report.tasks):
                worker.stop()

        worker.reports.send = stop_at_a_halt
        try:
            worker.run()
        finally:
            worker.close()


def test_an_emptied_changelog_halts_its_task(kafka_broker: Broker, tmp_path: Path) -> None:
    """Of what an earlier life has written the stream alone is there. No start writes what the next takes for one."""
    topic = f"t{os.urandom(6).hex()}"
    job = two_stages(topic)
    wiring = wire(job.topology(), 0, 0)
    with closing(KafkaLog(kafka_broker.bootstrap)) as log:
        log.create_topic(topic, 1, plain=True)
        create_topics(job, log)
        announced = RollbackEntry(1, 0)
        marker = encode_rollback_marker(wiring.producer, *announced, 1, wiring.fingerprint, (announced,))
        log.send(0, 0, wiring.outputs[0], marker)
        while not log.poll():
            log.wait(1_000)
    for _ in range(2):
        with pytest.raises(Halted, match=rf"{wiring.changelog.topic}\[0\] is empty, but .* has messages") as halted:
            work(kafka_broker, job, tmp_path)
        assert halted.value.code is HaltCode.CHANGELOG_GONE
