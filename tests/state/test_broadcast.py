"""A job that reads a topic whole, over a log: its positions, what may change, and what is refused with a way (A2d)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.core.graph.task_topology import wire
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.key_check import JobKeys
from grete.job.key_metadata import pinned
from grete.logs.embedded import EmbeddedLog
from grete.protocol.ids import TopicPartition
from grete.replay.determinism.replay import replay
from grete.settings import Settings
from grete.state.pins.graph_pinning import know_graph
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.commits import external_ends
from grete.state.write.fork import fork
from grete.state.write.rescale import rescale
from tests.support.bound import bind

ORDERS, PRICES = Topic("orders", key=utf8, value=int64), Topic("prices", key=utf8, value=int64)
ON = Topic("on", key=utf8, value=int64)
SETTINGS = Settings()


def job_of(*, broadcast: bool, name: str = "j", mode: Mode = "aligned") -> Job:
    """Return a job of 2 partitions that reads the prices whole, or its partition of them."""

    class Bill(Task):
        orders = Input(ORDERS)
        prices = Input(PRICES, broadcast=broadcast)
        known = Store("known", key=utf8, value=int64)

        def process(self, record: Record[str, int]) -> None: ...

    return Job(name, [Bill], partitions=2, mode=mode)


def stream_job(*, broadcast: bool) -> Job:
    """Return a job in which a stage sends to all tasks of the next, or to that of the key."""

    class First(Task):
        orders = Input(ORDERS)
        on = Output(ON)

        def process(self, record: Record[str, int]) -> None: ...

    class Second(Task):
        on = Input(ON, broadcast=broadcast)

        def process(self, record: Record[str, int]) -> None: ...

    return Job("j", [First, Second], partitions=2)


@pytest.fixture
def place(tmp_path: Path) -> JobDirectory:
    """Return the directory of a job."""
    return JobDirectory(tmp_path)


@pytest.fixture
def log(place: JobDirectory) -> Iterator[EmbeddedLog]:
    """Yield a log with orders in 2 partitions, and prices in 2."""
    with closing(place.open_log()) as opened:
        assert isinstance(opened, EmbeddedLog)
        for topic in ("orders", "prices"):
            opened.create_topic(topic, 2, plain=True)
        yield opened


WHOLE, PART = r"whole in each task \(broadcast=True\)", "by partition, each task its own"
WAYS = "put broadcast= back as it was; or start a job of another name, which reads its inputs from their first records"


@pytest.mark.parametrize(("before", "had", "has"), [(True, WHOLE, PART), (False, PART, WHOLE)])
def test_reading_a_topic_otherwise_is_refused(
    place: JobDirectory, log: EmbeddedLog, before: bool, had: str, has: str
) -> None:
    """The way in which a job has read a topic is pinned; with the former code it starts again (A2d)."""
    prepare(job_of(broadcast=before), log, place, SETTINGS)
    bind(log, "j")
    said = rf"stage 'bill' has read topic 'prices' {had}, and this code reads it {has}: {WAYS}"
    with pytest.raises(ConfigError, match=said):
        prepare(job_of(broadcast=not before), log, place, SETTINGS)
    prepare(job_of(broadcast=before), log, place, SETTINGS)


@pytest.mark.parametrize("before", [True, False])
def test_sending_a_stream_otherwise_is_refused(place: JobDirectory, log: EmbeddedLog, before: bool) -> None:
    """The streams of a graph are part of its fingerprint, broadcast ones among them (1.2, A2d)."""
    prepare(stream_job(broadcast=before), log, place, SETTINGS)
    bind(log, "j")
    with pytest.raises(ConfigError, match=rf"stage 'second' has read topic 'on'.*{WAYS}"):
        prepare(stream_job(broadcast=not before), log, place, SETTINGS)
    know_graph(stream_job(broadcast=before), log)
    prepare(stream_job(broadcast=before), log, place, SETTINGS)


def test_each_process_finds_how_many_partitions_there_are(place: JobDirectory, log: EmbeddedLog) -> None:
    """A topic that is read whole may get more partitions: the next start reads them, too (A2d)."""
    job = job_of(broadcast=True)
    prepare(job, log, place, SETTINGS)
    assert len(external_ends(log, job)) == 4
    log.create_topic("prices", 5, plain=True, grow=True)
    again = job_of(broadcast=True)
    know_graph(again, log)
    assert [p for p in wire(again.topology(), 0, 1).external if p.topic == "orders"] == [TopicPartition("orders", 1)]
    assert len(external_ends(log, again)) == 7


def test_keys_of_a_topic_that_is_read_whole_are_not_compared(place: JobDirectory, log: EmbeddedLog) -> None:
    """All of its keys belong to each task; those of the others are compared as ever."""
    metadata = prepare(job := job_of(broadcast=True), log, place, SETTINGS)
    check = JobKeys(job, metadata, place, SETTINGS).check_of(job.stages[0], 0)
    assert check is not None
    keys = [b"key %d" % number for number in range(200)]
    check(TopicPartition("prices", 0), range(200), keys)
    assert pinned(metadata, ["prices"]) == {}


def test_what_moves_state_refuses_it_with_a_way(place: JobDirectory, log: EmbeddedLog, tmp_path: Path) -> None:
    """Rescale and fork give a key, or a partition, one place; a replay takes the decisions of one task."""
    job = job_of(broadcast=True)
    prepare(job, log, place, SETTINGS)
    with pytest.raises(
        ConfigError, match=r"stage bill reads all of topic prices.*another name with Job\(…, partitions=4"
    ):
        rescale(log, job, 4, SETTINGS, own_topics=True, assume_keyed=False)
    target = job_of(broadcast=True, name="second")
    prepare(target, log, JobDirectory(tmp_path / "second"), SETTINGS)
    with pytest.raises(ConfigError, match=r"stage bill reads all of topic prices.*start the second job without a fork"):
        fork(log, job, [], log, target, SETTINGS, copy=False)
    with pytest.raises(ConfigError, match=r"stage bill reads all of topic prices.*a replay cannot do yet"):
        replay(job_of(broadcast=True, mode="deterministic"), log, SETTINGS)
