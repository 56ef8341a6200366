"""`grete doctor` on Kafka: rights as a real broker gives them, topics as they are set, brokers that are not there."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from grete.cli.commands.doctor import doctor
from grete.cli.doctor.kafka import uses
from grete.cli.job_target import NamedJob
from grete.errors import ExitCode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.logs.kafka import KafkaLog, KafkaReader
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.pins.pinning import DEFINED, pin_definition
from grete.state.pins.prepare import prepare
from grete.state.pins.unbound import BEFORE
from grete.state.read.checkpoints.commits import all_wirings
from grete.testing.broker.settings import free_port
from grete.worker.supervisor.local_job import LocalJob
from tests.logs.guarded_job import job as guarded_job
from tests.logs.guarded_job import sentences
from tests.logs.secure_broker import Entry, SecureBroker, listed, one_by_one
from tests.support.kafka_topics import create, delete
from tests.worker.workers import LIMIT_S

pytestmark = pytest.mark.kafka
JOB = str(Path(__file__).with_name("guarded_job.py"))


def findings(address: LogAddress, directory: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the findings that --json prints, without those of this machine."""
    doctor(NamedJob(JOB, directory / "job", address, Settings), json=True)
    assert not (directory / "job").exists()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [row for row in rows if row["where"] not in (str(directory / "job"), "this machine", "this user")]


def ends(broker: SecureBroker) -> dict[str, int]:
    """Return topic → where its first partition ends, of all topics."""
    with closing(KafkaReader.connect(broker.plain)) as log:
        return {topic: log.bounds(TopicPartition(topic, 0))[1] for topic in log.topics()}


def told(rows: list[dict[str, Any]], level: str) -> list[tuple[str, str]]:
    """Return (what, where) of the findings of a level."""
    return [(row["what"], row["where"]) for row in rows if row["level"] == level]


@pytest.fixture
def address(guarded: SecureBroker, tmp_path: Path) -> LogAddress:
    """The broker as its user comes to it."""
    options = tmp_path / "client.properties"
    options.write_text("".join(f"{name}={value}\n" for name, value in guarded.options().items()))
    return LogAddress(f"kafka://{guarded.bootstrap}", options)


def test_with_the_listed_rights_nothing_is_missing(
    guarded: SecureBroker, address: LogAddress, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of docs/guides/kafka.md is enough; what a client cannot know is said, not taken for an error."""
    before = ends(guarded)
    rows = findings(address, tmp_path, capsys)
    assert ends(guarded) == before  # no topic was made, no message sent
    assert told(rows, "error") == []
    rights = {row["where"]: row["value"] for row in rows if row["what"] == "rights"}
    assert rights["guarded.split.changelog"] == "Delete, DescribeConfigs, Read, Write"
    assert rights["guarded-sentences"] == rights["guarded.notes"] == rights["group guarded"] == "Read"
    assert rights["guarded-totals"] == rights["guarded-rejected"] == "Write"
    assert rights["transactional ids"].startswith("not known")
    assert ("reachable", "broker 1") in told(rows, "ok")
    assert "secret" not in json.dumps(rows)
    assert "canary" not in json.dumps(rows)


def of_topics_and_groups() -> list[Entry]:
    """Return the rights that a client can ask for."""
    return [entry for entry in listed() if entry[0] is not ResourceType.TRANSACTIONAL_ID]


@pytest.mark.parametrize("entry", one_by_one(of_topics_and_groups()))
def test_a_missing_right_is_named(
    entry: Entry, guarded: SecureBroker, address: LogAddress, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Taken back one by one: operation and resource are in what to do."""
    kind, name, operation = entry
    guarded.forbid(entry)
    try:
        rows = findings(address, tmp_path, capsys)
    finally:
        guarded.allow(entry)
    group = kind is ResourceType.GROUP
    named = operation.name.replace("_", " ").title().replace(" ", "")
    found = [
        row["remedy"] for row in rows if row["level"] != "ok" and row["where"] == (f"group {name}" if group else name)
    ]
    assert any(named in remedy for remedy in found), (entry, rows)
    assert told(rows, "error" if not group else "warning")


@contextmanager
def altered(broker: SecureBroker, topic: str, name: str, value: str) -> Iterator[None]:
    """Set a setting of a topic for a while."""

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        broker.admin.incremental_alter_configs([resource])[resource].result()

    before = ConfigResource(ResourceType.TOPIC, topic)
    was = broker.admin.describe_configs([before])[before].result()[name].value
    alter(AlterConfigOpType.SET)
    try:
        yield
    finally:
        value = str(was)
        alter(AlterConfigOpType.SET)


@pytest.mark.parametrize(
    ("topic", "name", "value", "level", "what"),
    [
        ("guarded.count.changelog", "cleanup.policy", "compact", "error", "settings"),
        ("guarded.split.changelog", "retention.ms", "1000000", "error", "settings"),
        ("guarded.count.changelog", "unclean.leader.election.enable", "true", "error", "settings"),
        ("guarded-sentences", "retention.ms", "3600000", "warning", "retention"),
        ("guarded-totals", "max.message.bytes", "1000", "warning", "message size"),
    ],
)
def test_a_setting_that_does_harm_is_found(
    topic: str,
    name: str,
    value: str,
    level: str,
    what: str,
    *,
    guarded: SecureBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the value that it has, and what to do."""
    plain = LogAddress(f"kafka://{guarded.plain}")
    with altered(guarded, topic, name, value):
        rows = findings(plain, tmp_path, capsys)
    (found,) = [row for row in rows if row["where"] == topic and row["what"] == what]
    assert (found["level"], value in found["value"]) == (level, True)
    assert found["remedy"]


def test_disk_that_brokers_give_back_late_is_a_warning(
    guarded: SecureBroker, address: LogAddress, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until a start by a user who may set it: the listed rights do not have AlterConfigs."""
    topic = "guarded.split.changelog"
    entry = ConfigEntry("segment.bytes", "", incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    guarded.admin.incremental_alter_configs([resource])[resource].result()

    def warned() -> list[dict[str, Any]]:
        return [row for row in findings(address, tmp_path, capsys) if row["what"] == "disk of brokers"]

    for options in (guarded.options(), None):
        (found,) = warned()
        assert (found["level"], found["where"]) == ("warning", topic)
        assert "segment.bytes=67108864" in found["remedy"]
        with closing(KafkaLog(guarded.bootstrap if options else guarded.plain, options)) as log:
            log.create_topic(topic, 1)
    assert warned() == []


def test_an_input_that_was_created_again_is_an_error(
    guarded: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the next start says; a first one, whose input is as it was, is well."""
    path, plain = tmp_path / "again.py", LogAddress(f"kafka://{guarded.plain}")
    path.write_text(Path(JOB).read_text().replace('"guarded', '"again'))
    admin: AdminClient = guarded.admin
    job, directory = load_job(str(path)), JobDirectory(tmp_path / "first", address=plain)
    inputs, log = [NewTopic("again-sentences", 1)], KafkaLog(guarded.plain)
    create(admin, *inputs)
    prepare(job, log, directory, Settings())

    def errors() -> list[dict[str, Any]]:
        doctor(NamedJob(str(path), tmp_path / "job", plain, Settings), json=True)
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [row for row in rows if row["level"] == "error" and row["where"] == "again-sentences"]

    assert errors() == []
    delete(admin, "again-sentences")
    create(admin, *inputs)
    (found,) = errors()
    assert "was deleted and created again" in found["value"]
    assert "GRETE-H017" in found["value"]
    log.close()


def test_an_input_that_has_expired_beyond_the_position_is_an_error(
    guarded: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job was away for longer than the topic keeps its records: the next start halts."""
    path, plain, topic = tmp_path / "expired.py", LogAddress(f"kafka://{guarded.plain}"), "expired-sentences"
    path.write_text(Path(JOB).read_text().replace('"guarded', '"expired'))
    admin, job, directory = guarded.admin, load_job(str(path)), JobDirectory(tmp_path / "first", address=plain)
    create(admin, NewTopic(topic, 1))
    producer = Producer({"bootstrap.servers": guarded.plain})

    def produce(count: int) -> None:
        for number in range(count):
            producer.produce(topic, b"some words", b"%d" % number)
        assert producer.flush(LIMIT_S) == 0

    def positions() -> list[dict[str, Any]]:
        doctor(NamedJob(str(path), tmp_path / "job", plain, Settings), json=True)
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [row for row in rows if row["what"] == "position"]

    produce(3)
    with LocalJob(job, str(path), directory, Settings(checkpoint_interval_ms=50)) as local:
        while not local.drained(local.ends()):
            local.poll(20)
        local.stop()
    assert {row["level"] for row in positions()} == {"ok"}
    produce(3)
    admin.delete_records([KafkaPartition(topic, 0, 5)])[KafkaPartition(topic, 0, 5)].result()
    (found,) = (row for row in positions() if row["level"] == "error")
    assert "committed up to 3, the topic holds 5 to 6" in found["value"]
    assert "GRETE-H015" in found["remedy"]


@pytest.mark.parametrize("option", ["transaction.timeout.ms", "producer.transaction.timeout.ms"])
def test_a_transaction_time_out_that_brokers_refuse_is_found(
    option: str, guarded: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given for the producer, or for all clients: it is the producer's in both."""
    options = tmp_path / "client.properties"
    options.write_text(f"{option}=2000000\n")
    rows = findings(LogAddress(f"kafka://{guarded.plain}", options), tmp_path, capsys)
    (found,) = [row for row in rows if row["what"] == "transaction timeout"]
    assert (found["level"], "asks for 2,000,000" in found["value"]) == ("error", True)


def test_metadata_of_a_job_that_another_process_just_began_is_not_called_gone(
    guarded: SecureBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers of a new job start at once: one has read the metadata before another pins, and finds that it runs."""
    path, plain = tmp_path / "once.py", LogAddress(f"kafka://{guarded.plain}")
    path.write_text(Path(JOB).read_text().replace('"guarded', '"once'))
    job = load_job(str(path))
    with closing(KafkaLog(guarded.plain)) as log, closing(KafkaLog(guarded.plain)) as late:
        create(guarded.admin, NewTopic("once-sentences", 1))
        metadata = late.open_metadata(job.name)
        assert metadata.meta_get(DEFINED) is None
        prepare(job, log, JobDirectory(tmp_path / "first", address=plain), Settings())
        changelog = next(iter(all_wirings(job))).changelog
        log.send(0, 1, changelog, b"a claim", sync=True)
        while not log.poll():
            log.wait(1_000)
        noted = log.read_metadata(job.name).meta_get(BEFORE)
        pin_definition(job, late, metadata, None, {}, lost=True)
        assert noted is not None
        assert log.read_metadata(job.name).meta_get(BEFORE) == noted  # the first code does not bind yet
    assert "is gone" not in caplog.text


def test_a_missing_input_and_another_number_of_partitions_are_errors(
    guarded: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first makes no topic; the second would place keys elsewhere."""
    admin: AdminClient = guarded.admin
    (tmp_path / "other.py").write_text(
        Path(JOB).read_text().replace('"guarded', '"other').replace("job = Job(", "job = Job(partitions=2, name=")
    )
    create(admin, NewTopic("other-sentences", 3))
    plain = LogAddress(f"kafka://{guarded.plain}")
    doctor(NamedJob(str(tmp_path / "other.py"), tmp_path / "job", plain, Settings))
    shown = capsys.readouterr().out
    assert "3, the job has 2" in shown
    assert "declare partitions=3 in the job" in shown
    delete(admin, "other-sentences")
    assert doctor(NamedJob(str(tmp_path / "other.py"), tmp_path / "job", plain, Settings)) == ExitCode.FAILED
    assert "this input is missing" in capsys.readouterr().out


def test_brokers_that_do_not_answer_are_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else can be known of them; the machine is looked at all the same."""
    (found,) = findings(LogAddress(f"kafka://127.0.0.1:{free_port()}"), tmp_path, capsys)
    assert (found["level"], found["what"]) == ("error", "brokers")


def test_each_topic_of_a_job_is_looked_at() -> None:
    """Those of the list in docs/guides/kafka.md."""
    listed_topics = {name for kind, name, _ in listed() if kind is ResourceType.TOPIC}
    assert set(uses(guarded_job)) == listed_topics
    assert uses(guarded_job)[sentences.name].partitions == 1
