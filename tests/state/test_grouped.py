"""Tasks that read several partitions of a topic (A2f), over a log: rescaled, on a topic that grew, refused."""

import json
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.errors import ConfigError, GraphError
from grete.job.directory import JobDirectory
from grete.job.topics import missing_topics
from grete.logs.embedded import EmbeddedLog
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.state.read.checkpoints.snapshots import snapshots
from grete.state.write import rescale as rescale_module
from tests.state.moving_host import SETTINGS, MovableJob

KEYS = [b"item %d" % number for number in range(40)]
SEEN = Topic("seen", key=utf8, value=int64)


def job_of(partitions: int, count: int | None) -> Job:
    """Return a job of two stages over a topic with ``count`` partitions; None: its declaration says none."""
    orders, sent = Topic("orders", key=utf8, value=int64, partitions=count), Topic("sent", key=utf8, value=int64)

    class Order(Task):
        orders_read = Input(orders)
        seen = Store("seen", key=utf8, value=int64)
        out = Output(sent)

        def process(self, record: Record[str, int]) -> None:
            self.seen.put(record.key, self.seen.get(record.key, 0) + 1)
            self.out.send(record.key, self.seen.get(record.key))

    class Count(Task):
        sent_read = Input(sent)
        seen = Store("seen", key=utf8, value=int64)
        out = Output(SEEN)

        def process(self, record: Record[str, int]) -> None:
            self.seen.put(record.key, self.seen.get(record.key, 0) + 1)
            self.out.send(record.key, record.value * 1_000 + self.seen.get(record.key, 0))

    return Job("counting", [Order, Count], partitions=partitions)


@pytest.fixture(autouse=True)
def no_worker_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out that a rescale watches for seconds whether a worker on another machine is at work."""
    monkeypatch.setattr(rescale_module, "refuse_if_owned", lambda *_: None)


def feed(movable: MovableJob, count: int) -> MovableJob:
    """Write a record of each key, as a producer does that knows this number of partitions."""
    data = movable.host.history.data
    for key in KEYS:
        data.append(
            TopicPartition("orders", partition_of(key, count)), key, b"\0" * 8, movable.host.history.now_ms, None
        )
    return movable


def expected(times: int) -> Counter[tuple[bytes, int]]:
    """Return all outputs when each key has come so often: in their order, each once."""
    return Counter((key, number * 1_001) for key in KEYS for number in range(1, times + 1))


def sent(movable: MovableJob) -> Counter[tuple[bytes, int]]:
    """Return the outputs."""
    found = movable.sent("seen").elements()
    return Counter((key or b"", int.from_bytes(value or b"", "big")) for key, value, _ in found)


def test_a_rescale_gives_the_partitions_of_a_topic_to_more_tasks() -> None:
    """State, positions and time go with them, nothing is read again, and the topic stays as it is."""
    first = feed(MovableJob(job_of(2, 8)), 8).run(crashes=3, seed=1)
    second = feed(first.moved(4), 8).run(crashes=3, seed=2)
    assert [len(each.commit.external) for each in snapshots(second.log, second.job)[:4]] == [2] * 4
    third = feed(second.moved(8), 8).run(crashes=3, seed=3)
    assert sent(third) == expected(3)
    assert json.loads(third.log.read_metadata("counting").meta_get("rescaled") or b"")["ends"] == []
    with pytest.raises(GraphError, match=r"'orders' has 8 partitions .* 'order', which reads it, has 16: "):
        third.moved(16)


def test_a_rescale_waits_until_all_is_read() -> None:
    """A record that is left would be read by a task that has not its state."""
    movable = feed(MovableJob(job_of(2, 4)), 4).run()
    feed(movable, 4)
    with pytest.raises(ConfigError, match=r"orders\[\d\] has records from offset"):
        movable.moved(4)


@pytest.mark.parametrize("before", [2, 4])
def test_a_topic_that_grew_keeps_its_keys_in_their_tasks(before: int) -> None:
    """Its new number is written down, and the new partitions begin with their first records."""
    movable = feed(MovableJob(job_of(2, None if before == 2 else before)), before).run(crashes=2, seed=1)
    movable.log.create_topic("orders", 8, plain=True, grow=True)
    feed(movable, 8)
    grown = MovableJob(job_of(2, 8), SETTINGS, movable).run(crashes=3, seed=2)
    assert sent(grown) == expected(2)


@pytest.mark.parametrize(("found", "says"), [(4, 8), (8, 4), (3, 6)])
def test_a_topic_with_another_number_is_refused(tmp_path: Path, found: int, says: int) -> None:
    """With both numbers, and what to write."""
    with closing(EmbeddedLog(tmp_path / "log.db")) as log:
        log.create_topic("orders", found, plain=True)
        with pytest.raises(ConfigError) as error:
            missing_topics(job_of(2, says), log, fed=())
    text = str(error.value)
    assert f"topic orders has {found} partitions, and its declaration in job 'counting' says {says}" in text
    assert f"write Topic(…, partitions={found}), a multiple of the 2 tasks of stage 'order'" in text


def test_a_topic_without_a_number_has_the_way_named(tmp_path: Path) -> None:
    """More partitions than tasks: more tasks, or several for each; a topic that is missing has the number to make."""
    with closing(EmbeddedLog(tmp_path / "log.db")) as log:
        with pytest.raises(ConfigError, match="--create --topic orders --partitions 8"):
            missing_topics(job_of(2, 8), log, fed=())
        log.create_topic("orders", 8, plain=True)
        with pytest.raises(ConfigError) as error:
            missing_topics(job_of(2, None), log, fed=())
        assert ("orders", 8, True) not in missing_topics(job_of(2, 8), log, fed=())
    assert "Job(…, partitions=8)" in str(error.value)
    assert "for 2 tasks that read several partitions each, Topic(…, partitions=8)" in str(error.value)


def test_a_start_makes_the_topic_with_its_number(tmp_path: Path) -> None:
    """On the embedded log, where it is made by the job."""
    with closing(JobDirectory(tmp_path).open_log()) as log:
        assert ("orders", 8, True) in missing_topics(job_of(2, 8), log)
