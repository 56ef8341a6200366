"""Topics that are changed under a job, and brokers that lack a feature: the error says so, and nothing is skipped."""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from grete import Input, Job, Output, Record, Store, Task, Topic, utf8
from grete.errors import ConfigError, ExitCode, Halted, exit_code
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.logs.kafka import KafkaLog, admin
from grete.logs.topic_identity import pin_topics
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.report import WorkerReport
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.testing.broker import Broker
from grete.worker.process.worker import OpenedLog, Worker
from tests.support.kafka_topics import create, delete, widen

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"t{os.urandom(6).hex()}"


@pytest.fixture
def client(kafka_broker: Broker) -> AdminClient:
    """Somebody else."""
    return AdminClient({"bootstrap.servers": kafka_broker.bootstrap})


def filled(reader: KafkaLog, topic: str) -> None:
    """Make a topic with a message in it."""
    reader.create_topic(topic, 1)
    reader.send(0, 0, TopicPartition(topic, 0), b"x")
    while not reader.poll():
        reader.wait(1_000)


def watch(reader: KafkaLog) -> None:
    """Poll as a worker does, until it raises."""
    while True:
        assert reader.poll() == []
        reader.wait(10)


def test_a_topic_created_again_halts_the_next_start(kafka_broker: Broker, client: AdminClient, topic: str) -> None:
    """A topic that was deleted and created again between two starts is not read on from an old offset.

    It has as many messages as before: nothing but its id tells. A job of another name reads it, as the halt says.
    """
    with closing(KafkaLog(kafka_broker.bootstrap)) as first:
        filled(first, topic)
        pin_topics(first, first.open_metadata(topic), [topic])
    with closing(KafkaLog(kafka_broker.bootstrap)) as second:
        pin_topics(second, second.open_metadata(topic), [topic])
    delete(client, topic)
    with closing(KafkaLog(kafka_broker.bootstrap)) as third:
        filled(third, topic)
        with pytest.raises(Halted, match=rf"topic {topic} was deleted and created again since the job first ran"):
            pin_topics(third, third.open_metadata(topic), [topic])
        pin_topics(third, third.open_metadata(f"{topic}-again"), [topic])  # a job of another name begins with it


@pytest.mark.parametrize("change", ["deleted", "created again", "partitions"])
def test_a_topic_that_changes_under_a_job_halts_it(
    kafka_broker: Broker, client: AdminClient, topic: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running worker notices soon that a topic was deleted, created again or given more partitions, and stops."""
    monkeypatch.setattr(admin, "WATCH_S", 0.05)
    with closing(KafkaLog(kafka_broker.bootstrap)) as reader:
        filled(reader, topic)
        reader.identities([topic])
        if change == "partitions":
            widen(client, topic, 3)
        else:
            monkeypatch.setattr(admin, "WATCH_S", 3600 if change == "created again" else 0.05)
            delete(client, topic)
            if change == "created again":
                with closing(KafkaLog(kafka_broker.bootstrap)) as other:
                    filled(other, topic)
        with pytest.raises(Halted, match=rf"topic {topic} .*{change}"):
            watch(reader)


def test_a_topic_that_is_deleted_while_it_is_trimmed_is_named_as_that(
    kafka_broker: Broker, client: AdminClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not as one to be created first. Topics are looked at as soon as a trim fails, not only when that is due."""
    with closing(KafkaLog(kafka_broker.bootstrap)) as log:
        filled(log, topic)
        log.identities([topic])
        end_is_known(log, topic)
        delete(client, topic)
        log.trim(TopicPartition(topic, 0), 2)
        with pytest.raises(Halted, match=rf"topic {topic} was deleted under the job"):
            watch(log)
    assert f"trimming {topic}[0] failed" in caplog.text
    assert "code=UNKNOWN_TOPIC_OR_PART," in caplog.text


def test_a_trim_for_which_the_client_knows_no_leader_is_made_up_for_by_the_next(
    kafka_broker: Broker, client: AdminClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As after brokers were away: it is said, and ends nothing. Here the topic is gone for a while."""
    partition = TopicPartition(topic, 0)
    with closing(KafkaLog(kafka_broker.bootstrap)) as other:
        filled(other, topic)
    with closing(KafkaLog(kafka_broker.bootstrap)) as log:
        end_is_known(log, topic)
        delete(client, topic)
        log.trim(partition, 2)
        while "code=_NOENT," not in caplog.text:
            assert log.poll() == []
            log.wait(10)
        with closing(KafkaLog(kafka_broker.bootstrap)) as other:
            filled(other, topic)
            while other.bounds(partition) != (1, 1):
                log.trim(partition, 1)
                assert log.poll() == []
                log.wait(10)


def end_is_known(log: KafkaLog, topic: str) -> None:
    """Send a second message; from here on the client asks nothing before a trim."""
    log.send(0, 1, TopicPartition(topic, 0), b"y", sync=True)
    while not log.poll():
        log.wait(1_000)


def test_one_replica_is_reported(kafka_broker: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """A stream that one broker can lose is reported once, not once a topic."""
    caplog.set_level(logging.INFO, "grete.kafka")
    with closing(KafkaLog(kafka_broker.bootstrap)) as reader:
        reader.create_topic(topic, 1)
        reader.create_topic(f"{topic}.more", 1)
    assert len([line for line in caplog.messages if "one replica" in line]) == 1


# --- a job ---


def keeping(topic: str, partitions: int | None = None) -> Job:
    """Return a job of one task that reads one topic, with that number of partitions, and keeps what it reads."""

    class Keep(Task):
        lines = Input(Topic(topic, key=utf8, value=utf8, partitions=partitions))
        kept = Store("kept", key=utf8, value=utf8)

        def process(self, record: Record[str, str]) -> None:
            self.kept.put(record.key, record.value)

    return Job(f"job-{topic}", stages=[Keep])


def work(kafka_broker: Broker, job: Job, directory: Path, until: int, then: Callable[[], object] | None = None) -> int:
    """Run a worker until it has read and committed that many records; return its exit code.

    ``then``: what happens at that point, instead of the worker's stop.
    """
    happened: list[object] = []
    job_directory = JobDirectory(directory, address=LogAddress(f"kafka://{kafka_broker.bootstrap}"))
    reader = job_directory.open_log()
    with closing(reader):
        prepare(job, reader, job_directory, Settings())
        worker = Worker(job, [0], OpenedLog(reader), job_directory, Settings())

        def stop_in_time(_report: WorkerReport) -> None:
            committed = worker.drivers[0].core.commits.committed
            if committed is not None and sum(e.offset for e in committed.external) >= until and not happened:
                happened.append((then or worker.stop)())

        worker.reports.send = stop_in_time
        try:
            return worker.run()
        finally:
            worker.close()


def say(kafka_broker: Broker, topic: str, count: int, partition: int = 0) -> None:
    """Append records to the topic of a job."""
    with closing(KafkaLog(kafka_broker.bootstrap)) as writer:
        if writer.partitions(topic) is None:
            writer.create_topic(topic, 1, plain=True)
        now = time.time_ns() // 1_000_000
        writer.produce(
            0, 0, [ExternalRecord(TopicPartition(topic, partition), b"k", b"%d" % n, now) for n in range(count)]
        )
        while not writer.poll():
            writer.wait(1_000)


def test_input_that_expired_unread_halts(kafka_broker: Broker, client: AdminClient, topic: str, tmp_path: Path) -> None:
    """K3: records that the retention deleted before a job read them are not stepped over; both offsets are named."""
    job = keeping(topic)
    say(kafka_broker, topic, 3)
    assert work(kafka_broker, job, tmp_path, 3) == ExitCode.DONE
    say(kafka_broker, topic, 3)
    expired = KafkaPartition(topic, 0, 5)
    client.delete_records([expired])[expired].result()
    with pytest.raises(Halted, match=rf"{topic}\[0\] no longer has offset 3, .* starts at 5\. .*retention"):
        work(kafka_broker, job, tmp_path, 6)


def test_more_partitions_of_an_input_are_refused_at_a_start(
    kafka_broker: Broker, client: AdminClient, topic: str, tmp_path: Path
) -> None:
    """A job is not started on an input that has more partitions than it has tasks: it would not read them."""
    say(kafka_broker, topic, 1)
    widen(client, topic, 2)
    with pytest.raises(ConfigError, match=rf"topic {topic} has 2 partitions, and job .* has 1"):
        work(kafka_broker, keeping(topic), tmp_path, 1)


# --- what becomes of a job's own topics, outputs and inputs while it runs ---


def sending(topic: str) -> Job:
    """Return a job that sends on what it reads."""

    class Send(Task):
        lines = Input(Topic(topic, key=utf8, value=utf8))
        out = Output(Topic(f"{topic}-out", key=utf8, value=utf8))

        def process(self, record: Record[str, str]) -> None:
            self.out.send(record.key, record.value)

    return Job(f"job-{topic}", stages=[Send])


@pytest.mark.parametrize("gone", ["t-out", "job-t.notes"])
def test_an_output_or_the_metadata_that_is_deleted_halts(
    kafka_broker: Broker, client: AdminClient, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """Also while nothing is to be sent: a person is to know that what readers had is gone, or what the job pinned."""
    monkeypatch.setattr(admin, "WATCH_S", 0.05)
    say(kafka_broker, topic, 1)
    name = gone.replace("t", topic, 1) if gone == "t-out" else f"job-{topic}.notes"
    with pytest.raises(Halted, match=f"topic {name} was deleted under the job"):
        work(kafka_broker, sending(topic), tmp_path, 1, then=lambda: delete(client, name))
    assert work(kafka_broker, sending(topic), tmp_path, 1) == ExitCode.DONE  # the way that the error names


def test_metadata_that_was_deleted_is_said_at_the_next_start(
    kafka_broker: Broker, client: AdminClient, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job goes on, and pins what its code says now: what was pinned before is compared no more."""
    say(kafka_broker, topic, 1)
    assert work(kafka_broker, keeping(topic), tmp_path, 1) == ExitCode.DONE
    assert "metadata" not in caplog.text
    delete(client, f"job-{topic}.notes")
    assert work(kafka_broker, keeping(topic), tmp_path, 1) == ExitCode.DONE
    assert f"the metadata of job job-{topic} is gone" in caplog.text


def test_a_changelog_that_becomes_compacted_under_a_job_is_named(
    kafka_broker: Broker, client: AdminClient, topic: str
) -> None:
    """The broker refuses messages without a key from then on: the setting is named, and nothing is tried again."""
    with closing(KafkaLog(kafka_broker.bootstrap)) as log:
        filled(log, topic)
        change = AlterConfigOpType.SET
        entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=change)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result()

        def send() -> None:
            while True:  # a broker takes the setting some time after it was told
                log.send(0, 1, TopicPartition(topic, 0), b"y")
                while not log.poll():
                    log.wait(1_000)

        with pytest.raises(Halted, match=rf"{topic}.* without a key.*cleanup\.policy"):
            send()


def test_an_input_that_expires_under_a_worker_halts(
    kafka_broker: Broker, client: AdminClient, topic: str, tmp_path: Path
) -> None:
    """K3: what a running worker had still to read was deleted: exit code 4, with the offsets, as at a start."""
    made: list[int] = []

    class Expire(Task):
        lines = Input(Topic(topic, key=utf8, value=utf8))

        def process(self, record: Record[str, str]) -> None:
            if not made:
                made.append(0)
                end = KafkaPartition(topic, 0, 60)
                client.delete_records([end])[end].result()

    with closing(KafkaLog(kafka_broker.bootstrap)) as writer:
        writer.create_topic(topic, 1, plain=True)
        big = b"x" * 900_000
        writer.produce(0, 0, [ExternalRecord(TopicPartition(topic, 0), b"k", big, 1 + n) for n in range(60)])
        while not writer.poll():
            writer.wait(1_000)
    with pytest.raises(Halted, match=rf"expire-0 .*{topic}\[0\].* 60: .*retention") as caught:
        work(kafka_broker, Job(f"job-{topic}", stages=[Expire]), tmp_path, 60)
    assert exit_code(caught.value) == ExitCode.HALTED


def test_a_changelog_that_the_broker_made_again_is_named_as_that(
    kafka_broker: Broker, client: AdminClient, topic: str, tmp_path: Path
) -> None:
    """With another number of partitions, as a broker makes topics by itself: it is not the job's number to change."""
    say(kafka_broker, topic, 1)
    job = keeping(topic)
    assert work(kafka_broker, job, tmp_path, 1) == ExitCode.DONE
    changelog = f"job-{topic}.keep.changelog"
    delete(client, changelog)
    create(client, NewTopic(changelog, 3))
    with pytest.raises(Halted, match=f"topic {changelog} was deleted and created again since the job first ran"):
        work(kafka_broker, job, tmp_path, 1)


def test_a_topic_that_is_not_known_yet_is_awaited(kafka_broker: Broker, client: AdminClient, topic: str) -> None:
    """A worker asks for it before the broker knows it: here it is made only once the worker has been told no."""
    log = KafkaLog(kafka_broker.bootstrap)
    assert log.partitions(topic) is None
    later = threading.Timer(1.0, lambda: client.create_topics([NewTopic(topic, 1)]))
    later.start()
    assert log.bounds(TopicPartition(topic, 0)) == (0, 0)
    later.join()
    with pytest.raises(ConfigError, match=r"there is no partition .*\[1\]"):
        log.bounds(TopicPartition(topic, 1))
    log.close()
