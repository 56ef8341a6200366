"""Floors of event time after a move: their lifetime, and the moves that are refused (0079)."""

import pytest

from grete import (
    ById,
    Input,
    Job,
    Output,
    Record,
    Task,
    Topic,
    TumblingWindow,
    Window,
    int64,
    utf8,
)
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError
from grete.execution.timing.floors import FLOOR, Floor
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.protocol.partitioner import partition_of
from grete.state.read.live_entries import event_time_of
from grete.state.write import rescale as rescale_module
from grete.state.write.moving.routes import FLOORS_MAX
from tests.state.moving_host import SETTINGS, Fed, MovableJob, Sent

BEGIN_MS = 1_700_000_000_000
EVENTS, TOLD, TOTALS = "events", "told", "totals"


@pytest.fixture(autouse=True)
def not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for live workers of these jobs: theirs are in this process."""
    monkeypatch.setattr(rescale_module, "refuse_if_owned", lambda *_: None)


def job_of(partitions: int, task: type[Task]) -> Job:
    """Return a job of one stage."""
    return Job("moving", [task], partitions=partitions)


def floors_of(job: MovableJob, partition: int) -> list[Floor]:
    """Return the floors of a task."""
    found = job.state(partition)
    return [Floor.of_entry(found[store, key]) for store, key in sorted(found) if store == META and FLOOR in key]


def time_of(job: MovableJob, partition: int) -> int:
    """Return the event time of a task, from 0 on where these jobs begin."""
    return event_time_of(job.state(partition).get((META, STREAM_TIME))) - BEGIN_MS


def ahead(job: MovableJob, partition: int, at: int) -> list[Fed]:
    """Return a record of a key of this partition, at a time of its own."""
    name = next(f"k{number}" for number in range(100) if partition_of(b"k%d" % number, job.job.partitions) == partition)
    return [(name.encode(), bytes(8), BEGIN_MS + at)]


class Sums(Task):
    """Adds up in a window."""

    events = Input(Topic(EVENTS, key=utf8, value=int64))
    blocks = TumblingWindow("blocks", 70, key=utf8, value=int64)
    told = Output(Topic(TOLD, key=utf8, value=int64))

    def process(self, record: Record[str, int]) -> None:
        """Add it up."""
        if not self.blocks.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + 1):
            self.told.send(record.key, -1)

    def on_window(self, window: Window[str, int]) -> None:
        """Tell the sum."""
        self.told.send(window.key, window.value)


def test_floors_are_kept_until_time_has_passed_them_and_of_two_moves_both() -> None:
    """Behind a second move before that each task has the floors of both; a move without a difference leaves none."""
    job = MovableJob(job_of(2, Sums))
    job = job.feed(EVENTS, [*ahead(job, 0, 0), *ahead(job, 1, 500)]).run().moved(3)
    assert [time_of(job, number) for number in range(3)] == [0, 0, 0]
    first = Floor((BEGIN_MS, BEGIN_MS + 500))
    assert [floors_of(job, number) for number in range(3)] == [[first]] * 3
    job.feed(EVENTS, [*ahead(job, 0, 600), *ahead(job, 1, 70), *ahead(job, 2, 30)]).run()
    assert [floors_of(job, number) for number in range(3)] == [[], [first], [first]]
    job = job.moved(5)
    second = Floor(tuple(BEGIN_MS + at for at in (600, 70, 30)))
    for number in range(5):
        assert sorted(floors_of(job, number), key=lambda each: len(each.times)) == [first, second]
        assert time_of(job, number) == 30
    job.feed(EVENTS, [record for number in range(5) for record in ahead(job, number, 1_000)]).run()
    assert [floors_of(job, number) for number in range(5)] == [[]] * 5
    job = job.moved(6)
    assert [(floors_of(job, number), time_of(job, number)) for number in range(6)] == [([], 1_000)] * 6


def test_too_many_floors_are_refused_with_what_to_wait_for() -> None:
    """A bound: each costs a lookup with each record. When time has gone on, the job is rescaled as any other."""
    job = MovableJob(job_of(2, Sums))
    job.feed(EVENTS, [*ahead(job, 0, 0), *ahead(job, 1, 5_000)]).run()
    for number in range(FLOORS_MAX):
        job = job.moved(3 + number).feed(EVENTS, ahead(job, 0, number + 1)).run()
    assert len(floors_of(job, 1)) == FLOORS_MAX
    more = job.job.partitions + 1
    with pytest.raises(
        ConfigError, match=f"stage sums was rescaled {FLOORS_MAX} times while the event times of its ta"
    ):
        job.moved(more)
    job.feed(EVENTS, [record for number in range(more - 1) for record in ahead(job, number, 6_000)]).run()
    assert floors_of(job.moved(more), 0) == []


def test_a_store_without_keys_tells_nothing_where_tasks_are_apart() -> None:
    """Keys to come are late by their own old partition: a window that is keyed otherwise would have a wrong one."""
    job = MovableJob(job_of(2, Sums))
    job.feed(EVENTS, [(b"k%d" % number, bytes(8), BEGIN_MS) for number in range(40)]).run()
    together = job.moved(3, assume_keyed=False)  # 40 panes
    assert time_of(together, 0) == 0
    job = MovableJob(job_of(2, Sums))
    job.feed(EVENTS, [*ahead(job, 0, 0), *ahead(job, 1, 500)]).run().drain()
    assert job.state(0).keys().isdisjoint({(10, key) for _, key in job.state(0)})
    with pytest.raises(ConfigError, match="cannot tell from 0 keys in 2 partitions whether the keys of store sums/blo"):
        job.moved(3, assume_keyed=False)
    job.moved(3)


class ByValue(Sums):
    """The same, by something else than the record's key."""

    name = "sums"

    def process(self, record: Record[str, int]) -> None:
        """Add it up."""
        self.blocks.update(str(record.value), record.timestamp, lambda sum_: (sum_ or 0) + 1)


def test_windows_that_are_keyed_otherwise_are_refused() -> None:
    """The error has the key, and what to do; nothing is changed."""
    job = MovableJob(job_of(2, ByValue))
    job.feed(EVENTS, [(b"k%d" % number, number.to_bytes(8, "big"), BEGIN_MS) for number in range(40)]).run()
    before = {topic: job.log.partitions(topic) for topic in job.log.topics()}
    with pytest.raises(
        ConfigError,
        match=r"sums/blocks: key b'\d+' is in partition ., and its own key would be in .: .* run its history through",
    ):
        job.moved(3)
    assert {topic: job.log.partitions(topic) for topic in job.log.topics()} == before


class Later(Task):
    """Adds up what the other one has told."""

    told = Input(Topic(TOLD, key=utf8, value=int64))
    totals = TumblingWindow("totals", 100, key=utf8, value=int64, grace_ms=2_000)  # an input may be idle
    out = Output(Topic(TOTALS, key=utf8, value=int64))

    def process(self, record: Record[str, int]) -> None:
        """Add it up."""
        if not self.totals.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value):
            self.out.send(f"late {record.key}", record.value)

    def on_window(self, window: Window[str, int]) -> None:
        """Tell the sum."""
        self.out.send(f"{window.key} {window.start}", window.value)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_windows_behind_windows_have_the_results_of_a_job_that_was_never_moved(mode: Mode) -> None:
    """Both stages move twice, one partition ahead: what then comes in the order of time gives the same."""
    keys = [b"k%d" % number for number in range(12)]
    phases = [
        [(key, bytes(8), BEGIN_MS + begin + 3 * number) for number, key in enumerate(keys * 4)]
        for begin in (0, 150, 300, 1_200)
    ]
    ends: list[Sent] = []
    for path in ((2, 2, 2, 2), (2, 3, 3, 5)):
        job, sent = MovableJob(Job("moving", [Sums, Later], partitions=2, mode=mode)), Sent()
        for partitions, records in zip(path, phases, strict=True):
            if partitions != job.job.partitions:
                before = job
                job = job.moved(partitions)
                sent += before.sent(TOTALS) if job.host.history.data is not before.host.history.data else Sent()
            job.feed(EVENTS, records).run(crashes=2, seed=len(records))
            if records is phases[0]:  # one partition is ahead, and so late for some of what follows
                job.feed(EVENTS, [row for row in phases[2] if partition_of(row[0], 2) == 1]).run()
        ends.append(sent + job.drain().sent(TOTALS))
    assert ends[0].total() > 50
    assert ends[0] == ends[1]


def test_a_stage_that_keeps_its_number_keeps_the_times_of_its_tasks() -> None:
    """Only the tasks of the stage that gets partitions begin with the least."""
    job = MovableJob(Job("moving", [Sums, Later], partitions=2))
    job.feed(EVENTS, [(b"k%d" % number, bytes(8), BEGIN_MS) for number in range(40)])
    job.feed(EVENTS, [*ahead(job, 0, 100), *ahead(job, 1, 500)]).run()
    stage = job.job.stages[1]
    before = [job.state(number, stage=1)[META, STREAM_TIME] for number in range(2)]
    rescale_module.rescale(job.log, job.job, 3, SETTINGS, own_topics=True, stage="sums", assume_keyed=True)
    job = MovableJob(job.job.of(3, "sums"), SETTINGS, job)
    assert [time_of(job, number) for number in range(3)] == [100] * 3
    assert [job.state(number, stage=1)[META, STREAM_TIME] for number in range(2)] == before
    assert job.job.stages[1].partitions == stage.partitions == 2


class Once(Sums):
    """Drops what has come before, by the record's own key."""

    events = Input(Topic(EVENTS, key=utf8, value=int64), deduplicate=ById(lambda record: record.key, horizon_ms=300))


class OnceById(Sums):
    """The same, by an id of the record."""

    name = "once"
    events = Input(
        Topic(EVENTS, key=utf8, value=int64), deduplicate=ById(lambda record: str(record.value), horizon_ms=300)
    )


def test_what_is_known_of_duplicates_moves_if_the_id_is_the_key() -> None:
    """A repeat is dropped behind the move as long as before; another id does not tell where its record will be."""
    keys = [b"k%d" % number for number in range(40)]
    job = MovableJob(job_of(2, Once))
    job.feed(EVENTS, [(key, bytes(8), BEGIN_MS) for key in keys]).feed(EVENTS, ahead(job, 1, 1_000)).run()
    job = job.moved(3, assume_keyed=False)
    job.feed(EVENTS, [(key, bytes(8), BEGIN_MS + 210) for key in keys]).run()
    job.feed(EVENTS, [(b"tick", bytes(8), BEGIN_MS + 9_000)]).run().drain()
    late = {key for key, value, _ in job.sent(TOLD) if value == (-1).to_bytes(8, "big", signed=True)}
    gone = {key for key in keys if partition_of(key, 2) == 1}  # expired there, so not dropped: late for its window
    assert late == gone
    other = MovableJob(job_of(2, OnceById))
    other.feed(EVENTS, [(key, number.to_bytes(8, "big"), BEGIN_MS) for number, key in enumerate(keys)]).run()
    with pytest.raises(ConfigError, match=r"store once/seen-events: key .* it is not keyed as the records are"):
        other.moved(3)
