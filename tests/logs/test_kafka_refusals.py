"""Records that a broker refuses are named, with their topic and the setting that decides."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from grete.errors import ConfigError, FrameworkError, Halted, LogAway, Refused, TransientError
from grete.halts import HaltCode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.logs.kafka import KafkaLog
from grete.logs.kafka.client.errors import failure
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.support.kafka_topics import create
from tests.worker.test_supervisor import poll_until

HOUR_MS = 3_600_000
JOB = """
from grete import Input, Job, Record, Store, Task, Topic, utf8

class Keep(Task):
    lines = Input(Topic("NAME-lines", key=utf8, value=utf8))
    texts = Store("texts", key=utf8, value=utf8)
    def process(self, record: Record[str, str]) -> None:
        self.texts.put(record.key, record.value * 1_000)

job = Job("NAME", stages=[Keep])
"""


def test_each_error_of_a_produce_request_is_classified() -> None:
    """Each answer of Kafka 4.1 to a produce request is a refusal, ours to repair, or passing; none is a guess."""
    expected: dict[type[FrameworkError], set[str]] = {
        Refused: {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP"},
        ConfigError: {
            *("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
            *("UNKNOWN_TOPIC_OR_PART", "TOPIC_EXCEPTION", "INVALID_REQUIRED_ACKS", "POLICY_VIOLATION"),
            *("UNSUPPORTED_COMPRESSION_TYPE", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UNSUPPORTED_VERSION"),
        },
        LogAway: {"LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT", "FENCED_LEADER_EPOCH"},
        TransientError: {
            *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR", "INVALID_MSG"),
            *("OUT_OF_ORDER_SEQUENCE_NUMBER", "DUPLICATE_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID"),
            *("INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING", "CONCURRENT_TRANSACTIONS"),
            *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NETWORK_EXCEPTION"),
            *("THROTTLING_QUOTA_EXCEEDED", "TRANSACTION_COORDINATOR_FENCED"),
        },
    }
    for kind, names in expected.items():
        for name in names:
            error = failure(KafkaError(getattr(KafkaError, name)), "sending")
            assert (name, type(error)) == (name, kind)
            assert "Grete knows no remedy" not in str(error), name
    assert "Grete knows no remedy" in str(failure(KafkaError(KafkaError.STALE_BROKER_EPOCH), "sending"))


@pytest.fixture
def log(kafka_broker: Broker) -> Iterator[KafkaLog]:
    """A connection."""
    log = KafkaLog(kafka_broker.bootstrap)
    yield log
    log.close()


@pytest.fixture
def out(kafka_broker: Broker) -> TopicPartition:
    """An output topic that takes records of up to an hour behind and ahead, whatever the broker's default is."""
    name = f"t{os.urandom(6).hex()}"
    config = {f"message.timestamp.{way}.max.ms": str(HOUR_MS) for way in ("before", "after")}
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    create(client, NewTopic(name, 1, config=config))
    return TopicPartition(name, 0)


def produced(log: KafkaLog, records: list[ExternalRecord]) -> None:
    """Send plain records, and wait until the broker has taken them."""
    log.produce(0, 0, records)
    until_answered(log)


def committed(log: KafkaLog, records: list[ExternalRecord]) -> None:
    """Send them with a commit, in a transaction, and wait likewise."""
    changelog = TopicPartition(f"{records[0].partition.topic}.changelog", 0)
    log.create_topic(changelog.topic, 1)
    log.transactional(changelog)
    log.send(0, -1, changelog, b"commit", sync=True, outputs=records)
    until_answered(log)


def until_answered(log: KafkaLog) -> None:
    """Poll until something is answered."""
    while not log.poll():
        log.wait(10_000)


def dated(out: TopicPartition, *ahead_ms: int) -> list[ExternalRecord]:
    """Return records with these distances from the clock, each with a key that says which it is."""
    now = time.time_ns() // 1_000_000
    return [ExternalRecord(out, b"key %d" % n, b"v", now + ahead) for n, ahead in enumerate(ahead_ms)]


@pytest.mark.kafka
@pytest.mark.parametrize("send", [produced, committed])
@pytest.mark.parametrize(("ahead_ms", "setting"), [(90 * 24 * HOUR_MS, "after"), (-2 * HOUR_MS, "before")])
def test_an_output_dated_too_far_ahead_is_refused_before_it_is_sent(
    log: KafkaLog, out: TopicPartition, send: Callable[..., None], ahead_ms: int, setting: str
) -> None:
    """Or too far behind. Nothing of its checkpoint is in the topic; what is well within the limits is taken."""
    send(log, dated(out, 0, HOUR_MS // 2, -HOUR_MS // 2))
    taken = 3 + (send is committed)  # the end of a transaction is a record, too, and comes a moment later
    while log.bounds(out)[1] < taken:
        log.wait(10)
    text = rf"{out.topic}\[0\], key b'key 1', timestamp \d+ .* s .* message\.timestamp\.{setting}\.max\.ms = {HOUR_MS}"
    with pytest.raises(Refused, match=text) as refused:
        send(log, dated(out, 0, ahead_ms, 0))
    assert (refused.value.code, refused.value.partition) == (HaltCode.RECORD_REFUSED, out)
    assert log.bounds(out)[1] == taken


@pytest.mark.kafka
@pytest.mark.parametrize("send", [produced, committed])
def test_what_only_the_broker_refuses_names_the_record(
    log: KafkaLog, out: TopicPartition, send: Callable[..., None]
) -> None:
    """So close to the limit that clocks may differ. The broker refuses a batch, and does not say for which record."""
    text = rf"{out.topic}\[0\], key b'key 1', timestamp .*INVALID_TIMESTAMP.*message\.timestamp\.after\.max\.ms"
    with pytest.raises(Refused, match=text):
        send(log, dated(out, 0, HOUR_MS + 40_000, 0))


@pytest.mark.kafka
def test_a_value_that_is_too_large_names_store_and_key(tmp_path: Path, kafka_broker: Broker) -> None:
    """The log sees a message of a changelog; the worker knows what is in it. Code that keeps less goes on."""
    name, path = f"t{os.urandom(6).hex()}", tmp_path / "large.py"
    path.write_text(JOB.replace("NAME", name))
    job_directory = JobDirectory(tmp_path / "job", address=LogAddress(f"kafka://{kafka_broker.bootstrap}"))
    with LocalJob(
        load_job(str(path)), str(path), job_directory, Settings(), inputs=OutsideInputs([f"{name}-lines"])
    ) as local:
        at = TopicPartition(f"{name}-lines", 0)
        rows = [(b"small", b"x"), (b"large", b"x" * 4_000), (b"small too", b"x")]
        local.metadata.produce_with_meta([ExternalRecord(at, key, value, 1) for key, value in rows], {})
        text = r"max\.message\.bytes.* The largest in it is store 'texts', key b'large': 4000000 bytes"
        with pytest.raises(Halted, match=text) as halted:
            poll_until(local, lambda: False)
        assert halted.value.code is HaltCode.RECORD_REFUSED
    repaired = tmp_path / "repaired.py"
    repaired.write_text(path.read_text().replace("record.value * 1_000", "record.value[:1]"))
    with LocalJob(load_job(str(repaired)), str(repaired), job_directory, Settings()) as local:
        poll_until(local, lambda: local.drained(local.ends()))
        assert local.records_committed() == len(rows)
        local.stop()
