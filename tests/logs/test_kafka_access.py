"""Least privilege: a job works with exactly the access that docs/guides/kafka.md lists, and says which one it lacks."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from grete import Job, int64
from grete.api.tasks.mode import Mode
from grete.cli.commands import changelog, state
from grete.cli.commands import checkpoints as checkpoints_module
from grete.cli.commands import topic as topic_module
from grete.cli.job_target import NamedJob
from grete.core.graph.partitioners import Partitioner
from grete.errors import ConfigError, ExitCode
from grete.execution.changelog import changelog_writer
from grete.execution.deterministic.differing import explained
from grete.execution.deterministic.remade import OutputsDiffer
from grete.job.directory import JobDirectory
from grete.job.key_metadata import pin
from grete.logs.address import LogAddress
from grete.logs.kafka import KafkaLog
from grete.logs.kafka.members_topic import KafkaMembersTopic
from grete.logs.patience import Patience
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.report import WorkerReport
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.worker.process.worker import OpenedLog, Worker
from tests.logs.guarded_job import Count, Forward, rejected, sentences, totals
from tests.logs.guarded_job import job as guarded_job
from tests.logs.secure_broker import Entry, SecureBroker, listed, one_by_one

pytestmark = pytest.mark.kafka
SETTINGS = Settings(checkpoint_interval_ms=50, changelog_retention_ms=0)
COMMITS, SOME = 8, 2  # a round of the changelogs, with what is trimmed behind it; and without


@pytest.fixture(autouse=True)
def trims_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few commits pay for a round: a changelog without changes would be trimmed after 64 KiB of them."""
    monkeypatch.setattr(changelog_writer, "REWRITE_IDLE_BYTES", 0)


def sentence(text: str) -> ExternalRecord:
    """Return an input, dated now: retention deletes what is old."""
    return ExternalRecord(TopicPartition(sentences.name, 0), b"k", text.encode(), time.time_ns() // 1_000_000)


def say(broker: SecureBroker, *texts: str) -> None:
    """Append sentences, as somebody who may."""
    log = KafkaLog(broker.plain)
    log.produce(0, 0, [*map(sentence, texts)])
    while not log.poll():
        log.wait(1_000)
    log.close()


def committed(worker: Worker, commits: int = COMMITS) -> bool:
    """Whether each task has committed some checkpoints."""
    return all(driver.parts.counters["commits"] >= commits for driver in worker.drivers)


def work(
    broker: SecureBroker, directory: Path, job: Job = guarded_job, until: Callable[[Worker], bool] = committed
) -> int:
    """Run a worker until it has done enough; return its exit code. Raises what it fails with.

    It gets a sentence more with each report: the next commit of a task without work would come seconds later.
    """
    log = KafkaLog(broker.bootstrap, broker.options(), group=job.name)
    giving = KafkaLog(broker.plain)
    try:
        ours = JobDirectory(directory / "job", address=LogAddress(f"kafka://{broker.bootstrap}"))
        prepare(job, log, ours, SETTINGS)
        worker = Worker(job, [0], OpenedLog(log), ours, SETTINGS)

        def stop_in_time(_report: WorkerReport) -> None:
            if until(worker):
                worker.stop()
            else:
                giving.produce(0, 0, [sentence("more")])
                giving.poll()

        worker.reports.send, worker.reports.positions.publish = stop_in_time, log.publish
        try:
            return worker.run()
        finally:
            worker.close()
    finally:
        giving.close()
        log.close()


def join(broker: SecureBroker) -> None:
    """Write to the members' topic and read it, until that fails or comes back."""
    topic = KafkaMembersTopic(broker.bootstrap, broker.options(), guarded_job.name, Patience())
    with contextlib.closing(topic):
        topic.write(b"{}")
        rows = topic.read(0.1)
        while (topic.unwritten or not rows) and topic.failure is None:
            rows += topic.read(0.1)
        if topic.failure is not None:
            raise topic.failure


def test_what_is_listed_is_enough(guarded: SecureBroker, tmp_path: Path) -> None:
    """With exactly the listed access a job reads, keeps state, sends on, writes, sets aside and trims."""
    say(guarded, "rare word", "", "rare")
    assert work(guarded, tmp_path) == ExitCode.DONE
    join(guarded)
    log = KafkaLog(guarded.plain)
    rows = log.read(TopicPartition(totals.name, 0), 0, 1 << 20)
    assert [int64.decode(row.value or b"") for row in rows if row.key == b"rare"] == [1, 2]
    assert b"" in [row.value for row in log.read(TopicPartition(rejected.name, 0), 0, 1 << 20)]
    assert all(log.bounds(TopicPartition(f"guarded.{stage}.changelog", 0))[0] > 0 for stage in ("split", "count"))
    log.close()


@pytest.mark.parametrize("entry", one_by_one(listed()))
def test_what_is_missing_is_named(
    guarded: SecureBroker, tmp_path: Path, entry: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    """Without any one of them the error names operation and resource: nothing that is listed could be left out."""
    kind, name, operation = entry
    guarded.forbid(entry)
    try:
        say(guarded, "a b", "", "a")
        if kind is ResourceType.GROUP:  # for lag tools only
            assert work(guarded, tmp_path, until=partial(committed, commits=SOME)) == ExitCode.DONE
            assert "group guarded needs the operation Read" in caplog.text
            return
        needed = operation.name.replace("_", "")
        with pytest.raises(ConfigError, match=rf"(?i){name}.*grant this user.*{needed}"):
            join(guarded) if name.endswith(".members") else work(guarded, tmp_path)
    finally:
        guarded.allow(entry)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_what_stages_send_to_stages_is_in_no_transaction(guarded: SecureBroker, tmp_path: Path, mode: Mode) -> None:
    """A stage that writes nothing outside of the job needs no right to a TransactionalId; the one behind it does.

    So no change can bring the broker's transactions in between: with them, the first stage would be refused.
    """
    streamed = Job(f"streamed-{mode}", stages=[Forward, Count], mode=mode)
    entries = listed(streamed.name, ("forward", "count"), transactional=1)
    (sink,) = (entry for entry in entries if entry[0] is ResourceType.TRANSACTIONAL_ID)
    log, out = KafkaLog(guarded.plain), TopicPartition(totals.name, 0)
    prepare(streamed, log, JobDirectory(tmp_path / "admin", address=LogAddress(f"kafka://{guarded.plain}")), SETTINGS)
    known = {entry for entry in entries if entry in listed()}
    guarded.allow(*(entry for entry in entries if entry not in known))
    say(guarded, mode)
    before = log.bounds(out)[1]
    assert work(guarded, tmp_path, streamed, lambda _: log.bounds(out)[1] > before) == ExitCode.DONE
    rows = [row for row in log.read(out, before, 1 << 20) if row.key == mode.encode()]
    log.close()
    assert [int64.decode(row.value or b"") for row in rows] == [1]
    guarded.forbid(sink)
    with pytest.raises(ConfigError, match=rf"(?i){sink[1]}.*grant this user.*write"):
        work(guarded, tmp_path, streamed, lambda _: False)


@pytest.fixture
def read_only(guarded: SecureBroker) -> Iterator[SecureBroker]:
    """The broker while its user may read the job's topics, and nothing else."""
    topics = {name for kind, name, _ in listed() if kind is ResourceType.TOPIC}
    reading = [(ResourceType.TOPIC, name, AclOperation.READ) for name in sorted(topics)]
    more = [entry for entry in listed() if entry not in reading]
    guarded.allow(*reading)
    for entry in more:
        guarded.forbid(entry)
    yield guarded
    for entry in reading:
        if entry not in listed():
            guarded.forbid(entry)
    guarded.allow(*more)


def test_to_read_is_enough_for_commands_that_read(
    guarded: SecureBroker, tmp_path: Path, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    """A user who may only read looks at everything, and a worker of that user is refused."""
    say(guarded, "often seen", "often")
    assert work(guarded, tmp_path, until=partial(committed, commits=SOME)) == ExitCode.DONE
    broker: SecureBroker = request.getfixturevalue("read_only")
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in broker.options().items()))
    address = LogAddress(f"kafka://{broker.bootstrap}", config)
    named = NamedJob("tests.logs.guarded_job", None, address, Settings)
    checkpoints_module.checkpoints(named)
    assert state.state_get(named._replace(directory=tmp_path), "counts", "often") == ExitCode.DONE
    state.state_scan(named._replace(directory=tmp_path), "counts", limit=10)
    changelog.changelog_tail(named, "count", 0, count=5)
    changelog.changelog_verify(named)
    for topic in (totals, rejected, sentences):
        topic_module.topic_read(named, topic.name, count=1)
    shown = capfd.readouterr().out
    assert all(text in shown for text in ("count-0\tok", "split-0\tok", "often"))
    with pytest.raises(ConfigError, match="grant this user"):
        work(broker, tmp_path / "second")


def test_a_user_who_may_only_read_the_metadata_cannot_pin_a_partitioner(guarded: SecureBroker) -> None:
    """A worker makes a warning of it, and goes on: what is listed is enough."""
    log = KafkaLog(guarded.bootstrap, guarded.options(), group=guarded_job.name)
    with pytest.raises(ConfigError, match=r"(?i)guarded\.notes.*grant this user.*write"):
        pin(log.open_metadata(guarded_job.name), sentences.name, Partitioner.MURMUR2)
    log.close()


def test_a_sink_that_may_not_read_its_output_names_the_range(guarded: SecureBroker) -> None:
    """D5: which of the outputs differs cannot be said without Read on the topic; the halt says that, and the range."""
    say(guarded, "x")
    writer = KafkaLog(guarded.plain)
    partition = TopicPartition(totals.name, 0)
    writer.produce(0, 0, [ExternalRecord(partition, b"k", b"v", time.time_ns() // 1_000_000)])
    while not writer.poll():
        writer.wait(1_000)
    writer.close()
    log = KafkaLog(guarded.bootstrap, guarded.options(), group=guarded_job.name)
    try:
        differ = OutputsDiffer(partition, 3, 7, [ExternalRecord(partition, b"k", b"w", 0)], None)
        text = str(explained(differ, "count-0", b"guarded/count-0", log))
    finally:
        log.close()
    assert f"one or more of the outputs seq 3 to 7 in {partition} again" in text
    assert f"could not be read (the worker needs the right to read {totals.name})" in text
