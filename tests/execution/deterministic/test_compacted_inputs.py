"""A real broker compacts the input of a deterministic job, whose worker was killed before its commit (D2)."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from grete.errors import ConfigError, Halted
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.ports import ExternalRecord, Log
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.execution.deterministic.reference import rows_of
from tests.execution.deterministic.test_kills import DAY_MS, PATIENCE_S, all_running, poll_until

JOB = str(Path(__file__).with_name("counted_lines.py"))
TAKEN = 6
NO_COMMIT = Settings(checkpoint_interval_ms=DAY_MS)
CLEANED_AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}

pytestmark = pytest.mark.kafka


@pytest.fixture
def job_directory(kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    """A job's directory, for topics that no other test uses."""
    monkeypatch.setenv("WORDS_RUN", os.urandom(4).hex())
    return JobDirectory(tmp_path / "job", address=LogAddress(f"kafka://{kafka_broker.bootstrap}"))


@pytest.fixture
def log(job_directory: JobDirectory) -> Iterator[Log]:
    with closing(job_directory.open_log()) as opened:
        yield opened


@pytest.fixture
def admin(kafka_broker: Broker) -> AdminClient:
    """An operator, whose broker cleans within seconds."""
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    for broker in client.list_topics(timeout=PATIENCE_S).brokers:
        _set(client, ConfigResource(ResourceType.BROKER, str(broker)), {"log.cleaner.backoff.ms": "100"})
    return client


def _set(client: AdminClient, resource: ConfigResource, entries: dict[str, str]) -> None:
    for name, value in entries.items():
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for done in client.incremental_alter_configs([resource]).values():
        done.result()


def _feed(log: Log, into: TopicPartition, numbers: range) -> None:
    """Append records of two keys, but for the first: that is never compacted away."""
    for number in numbers:
        now = int(time.time() * 1_000)
        key = b"k%d" % (number % 2) if number else b"first"
        log.produce(0, 0, [ExternalRecord(into, key, b"line %d" % number, now)])
    while not log.poll():
        log.wait(100)


def _take_and_die(job_directory: JobDirectory, log: Log) -> tuple[TopicPartition, TopicPartition]:
    """Run until the outputs of six records are visible, and kill the worker before its commit."""
    job = load_job(JOB)
    (topic,), (output,) = job.topology().externals_of(0), job.external_sinks()
    into, out = TopicPartition(topic, 0), TopicPartition(output, 0)
    with LocalJob(job, JOB, job_directory, NO_COMMIT, inputs=OutsideInputs([topic])) as run:
        poll_until(run, lambda: all_running(run))
        _feed(log, into, range(TAKEN))
        poll_until(run, lambda: len(rows_of(log, out)) == TAKEN)
        run.supervisor.kill(0)
    return into, out


def _first_offsets(log: Log, into: TopicPartition) -> list[int]:
    """Return those of the first six offsets that are there. A read may return as little as one record."""
    offsets = [row.offset for row in log.read(into, 0, 1 << 20)]
    while offsets[-1] < TAKEN:
        offsets += [row.offset for row in log.read(into, offsets[-1] + 1, 1 << 20)]
    return [offset for offset in offsets if offset < TAKEN]


def _compact(log: Log, admin: AdminClient, into: TopicPartition) -> None:
    """Wait until the broker has removed records that the job took; newer ones of the same keys stand behind them."""
    _set(admin, ConfigResource(ResourceType.TOPIC, into.topic), CLEANED_AT_ONCE)
    deadline, number = time.monotonic() + PATIENCE_S, TAKEN + 2
    _feed(log, into, range(TAKEN, number))
    while _first_offsets(log, into) == [*range(TAKEN)]:
        assert time.monotonic() < deadline, "the broker does not compact"
        _feed(log, into, range(number, number + 2))  # an append rolls the segment: the active one is never cleaned
        number += 2
        log.wait(200)


def test_a_compacted_input_is_refused_or_noticed(job_directory: JobDirectory, log: Log, admin: AdminClient) -> None:
    """Later records do not take the place of those that are gone: the job is refused while the topic is compacted.

    If it was compacted only for a while, the successor halts, naming the records.
    """
    into, out = _take_and_die(job_directory, log)
    _compact(log, admin, into)
    with pytest.raises(ConfigError, match=rf"reads topic {into.topic}, which has cleanup.policy = compact"):
        LocalJob(load_job(JOB), JOB, job_directory, NO_COMMIT)
    _set(admin, ConfigResource(ResourceType.TOPIC, into.topic), {"cleanup.policy": "delete"})
    gone = r"6 records of .*, from offset 0 to 5, .* of them \(offsets 1.*\) are gone: it was compacted"
    with LocalJob(load_job(JOB), JOB, job_directory, NO_COMMIT) as run, pytest.raises(Halted, match=gone):
        poll_until(run, lambda: len(rows_of(log, out)) > TAKEN)
    assert len(rows_of(log, out)) == TAKEN
