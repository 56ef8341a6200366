"""A halt says that the log is to be put back: then the job goes on, and each record counts once."""

from collections.abc import Callable

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.errors import Halted
from grete.halts import HaltCode
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing.job_host import JobHost

LINES = TopicPartition("lines", 0)
STREAM = TopicPartition("twice.split.words.count", 0)
CHANGELOG = TopicPartition("twice.count.changelog", 0)
PRODUCER = TopicPartition("twice.split.changelog", 0)
WORDS = Topic("words", key=utf8, value=utf8)
FIRST, THEN = "abcdefghij", "klmno"
Damage = Callable[[JobHost], None]


class Split(Task):
    """The first stage."""

    lines = Input(Topic("lines", key=utf8, value=utf8))
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.value, record.value)


class Count(Task):
    """The second one."""

    words = Input(WORDS)
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)


def feed(host: JobHost, *words: str) -> None:
    """Write records to the input."""
    for word in words:
        host.history.data.append(LINES, b"k", word.encode(), 1, None)


def crash(host: JobHost, *, other_host: bool = False) -> None:
    """End all processes at once."""
    for task in host.tasks.values():
        task.crash(other_host=other_host)


def cut(place: TopicPartition, count: int) -> Damage:
    """Return a damage that takes the last messages of a partition away."""

    def damage(host: JobHost) -> None:
        del host.history.data.partition(place).rows[-count:]

    return damage


def trim(place: TopicPartition) -> Damage:
    """Return a damage that takes all messages of a partition away, as a retention does."""

    def damage(host: JobHost) -> None:
        found = host.history.data.partition(place)
        found.start, found.rows = found.end, []

    return damage


def empty(place: TopicPartition, *trimmed: TopicPartition) -> Damage:
    """Return a damage that makes a partition as if it had always been empty, when all of others has been trimmed."""

    def damage(host: JobHost) -> None:
        host.history.data.partition(place).start, host.history.data.partition(place).rows = 0, []
        for each in trimmed:
            trim(each)(host)

    return damage


def strange(place: TopicPartition) -> Damage:
    """Return a damage that puts a message of somebody else behind the others."""

    def damage(host: JobHost) -> None:
        host.history.data.append(place, None, b"who is this", 1, None)

    return damage


def thin(host: JobHost) -> None:
    """Take one of the records away that have been taken in and not committed."""
    del host.history.data.partition(LINES).rows[-2]


WAYS: list[tuple[HaltCode, Damage]] = [
    (HaltCode.LOG_LOST, cut(CHANGELOG, 2)),
    (HaltCode.LOG_WENT_BACK, cut(LINES, 10)),
    (HaltCode.CHANGELOG_DAMAGED, strange(CHANGELOG)),
    (HaltCode.CHANGELOG_GONE, trim(CHANGELOG)),
    (HaltCode.CHANGELOG_GONE, empty(PRODUCER)),
    (HaltCode.CHANGELOG_GONE, empty(PRODUCER, STREAM)),
    (HaltCode.STREAM_DAMAGED, strange(STREAM)),
    (HaltCode.INPUT_GONE, trim(LINES)),
    (HaltCode.INPUT_CHANGED, thin),
]


@pytest.mark.parametrize(("code", "damage"), WAYS)
def test_a_log_that_is_put_back_goes_on(code: HaltCode, damage: Damage) -> None:
    """The halt has its code, and was reached by what the code describes."""
    job = Job("twice", stages=[Split, Count], mode="deterministic" if code is HaltCode.INPUT_CHANGED else "aligned")
    host = JobHost(job, Settings(checkpoint_interval_ms=1_000))
    feed(host, *FIRST)
    host.run()
    if code is HaltCode.LOG_WENT_BACK:
        host.stop()
    feed(host, *THEN)
    if code is HaltCode.INPUT_CHANGED:
        host.process()  # and no commit: time does not pass
    crash(host, other_host=code is HaltCode.CHANGELOG_GONE)
    kept: dict[TopicPartition, tuple[int, list[LogRow]]] = {
        place: (each.start, [*each.rows]) for place, each in host.history.data.partitions.items()
    }
    damage(host)
    with pytest.raises(Halted) as halted:
        host.run()
    assert halted.value.code is code
    crash(host)
    for place, (start, rows) in kept.items():
        found = host.history.data.partition(place)
        found.start, found.rows = start, rows
    host.run()
    counts = {key.decode(): int64.decode(value) for key, value in host.tasks["count", 0].rows(Count.counts)}
    assert counts == dict.fromkeys([*FIRST, *THEN], 1)
