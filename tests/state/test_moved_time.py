"""Windows, joins and all that goes by event time, moved between tasks that are not equally far (0079)."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from framework.api.mode import Mode
from framework.api.serdes import Serde, functions_of
from framework.errors import ConfigError
from framework.execution.floors import FLOOR, Floor
from framework.execution.reserved_stores import META, STREAM_TIME
from framework.state import rescale as rescale_module
from framework.state.live_entries import event_time_of
from framework.state.routes import FLOORS_MAX
from grete import (
    ById,
    Every,
    HoppingWindow,
    Input,
    IntervalJoin,
    Job,
    Output,
    Pair,
    Record,
    SessionWindow,
    SlidingWindow,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    VersionedStore,
    Window,
    int64,
    utf8,
)
from protocol.partitioner import partition_of
from tests.state.moving_host import SETTINGS, Fed, MovableJob, Sent

BEGIN_MS = 1_700_000_000_000
EVENTS, TOLD, TOTALS = "events", "told", "totals"


@pytest.fixture(autouse=True)
def not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for live workers of these jobs: theirs are in this process."""
    monkeypatch.setattr(rescale_module, "refuse_if_owned", lambda *_: None)


def by_time(serde: Serde[Any]) -> type[Task]:
    """Return a task of all that goes by event time, keyed as its records are."""
    out = Topic(TOLD, key=utf8, value=int64)

    class ByTime(Task):
        events = Input(Topic(EVENTS, key=serde, value=int64))
        blocks = TumblingWindow("blocks", 70, key=serde, value=int64, grace_ms=20)
        hops = HoppingWindow("hops", 60, 20, key=serde, value=int64, grace_ms=10, emit=Every(50))
        near = SlidingWindow("near", 30, key=serde, value=int64)
        visits = SessionWindow("visits", 40, key=serde, value=int64, merge=int.__add__, grace_ms=5)
        joined = IntervalJoin(
            "joined", before_ms=40, after_ms=90, key=serde, left=int64, right=int64, how="outer", grace_ms=15
        )
        known = VersionedStore("known", serde, int64, retention_ms=100)
        recent = Store("recent", key=serde, value=int64, ttl_ms=60)
        patience = Timers()
        told = Output(out)

        def process(self, record: Record[Any, int]) -> None:
            key, at, value = record.key, record.timestamp, record.value
            for window in (self.blocks, self.hops, self.near, self.visits):
                if not window.update(key, at, lambda sum_: (sum_ or 0) + value):
                    self.told.send(f"late {window.name} {key}", value)
            put = self.joined.put_left if value % 2 else self.joined.put_right
            if not put(key, at, value):
                self.told.send(f"late joined {key}", value)
            self.told.send(f"recent {key}", self.recent.get(key, -1))
            self.recent.put(key, value)
            self.told.send(f"known {key}", self.known.get(key, at - 100, -1))
            self.known.put(key, at, value)
            if isinstance(key, str):  # the key of a timer is a str
                self.patience.schedule(at + 75, key)

        def on_window(self, window: Window[Any, int]) -> None:
            if window.final:
                self.told.send(f"{window.name} {window.key} {window.start} {window.end}", window.value)

        def on_join(self, pair: Pair[Any, int, int]) -> None:
            self.told.send(f"joined {pair.key} {pair.left} {pair.right}", 0)

        def on_timer(self, timer: Timer) -> None:
            self.told.send(f"timer {timer.key}", timer.at)

    return ByTime


def job_of(partitions: int, task: type[Task], name: str = "moving", mode: Mode = "aligned") -> Job:
    """Return a job of one stage."""
    return Job(name, [task], partitions=partitions, mode=mode)


def phases_of(seed: int, keys: Sequence[Any], encode: Any, count: int = 3) -> list[list[Fed]]:
    """Return records out of order; each key goes on at a pace of its own, so partitions are not equally far."""
    rng = random.Random(seed)
    paces = {key: rng.choice((1, 2, 40)) for key in keys}
    clocks = dict.fromkeys(keys, BEGIN_MS)
    phases: list[list[Fed]] = []
    for _ in range(count):
        records = []
        for _ in range(60):
            key = rng.choice(keys)
            clocks[key] += rng.randrange(2 * paces[key])
            value = rng.randrange(100).to_bytes(8, "big")
            records.append((encode(key), value, clocks[key] + rng.randrange(-90, 40)))
        phases.append(records)
    return phases


def groups(keys: Sequence[bytes], path: Sequence[int]) -> Iterator[tuple[list[bytes], list[list[bytes]]]]:
    """Yield keys that are in one partition all the way, and those that are in it beside them in each phase."""
    ways: dict[tuple[int, ...], list[bytes]] = {}
    for key in keys:
        ways.setdefault(tuple(partition_of(key, count) for count in path), []).append(key)
    for way, mine in ways.items():
        beside = [
            [key for key in keys if partition_of(key, count) == number] for count, number in zip(path, way, strict=True)
        ]
        yield mine, beside


def of_keys(sent: Sent, names: Sequence[str]) -> Sent:
    """Return what was sent of these keys: the second word of each key tells."""
    return type(sent)({row: n for row, n in sent.items() if (row[0] or b"").split()[1].decode() in names})


@pytest.mark.parametrize(
    ("seed", "path", "serde", "mode"),
    [
        *((seed, (2, 3, 2), utf8, "aligned") for seed in range(4)),
        *((seed, (3, 2, 1, 4), utf8, "aligned") for seed in range(4, 7)),
        *((seed, (2, 4, 6), utf8, "aligned") for seed in range(7, 10)),
        (10, (2, 3, 2), int64, "aligned"),
        (11, (2, 1, 4, 5), int64, "aligned"),
        *((seed, (2, 3, 2), utf8, "deterministic") for seed in (12, 13)),
        (14, (2, 1, 4), int64, "deterministic"),
    ],
)
def test_each_key_has_the_results_of_a_task_that_had_all_its_neighbours(
    seed: int, path: tuple[int, ...], serde: Serde[Any], mode: Mode
) -> None:
    """Moved in the middle, through crashes: late is what would have been late, and no result comes twice or is lost.

    What each key gets is compared with a task that was never moved and had, in each phase, the records of the partition
    in which the key was then.
    """
    encode = functions_of(serde)[0]
    names: list[Any] = [f"k{number}" for number in range(9)] if serde is utf8 else [*range(-4, 5)]
    task = by_time(serde)
    phases = phases_of(seed, names, encode, len(path))
    job = MovableJob(job_of(path[0], task, mode=mode))
    sent = Sent()
    for number, (partitions, records) in enumerate(zip(path, phases, strict=True)):
        if number:
            before = job
            job = before.moved(partitions)
            if job.host.data is not before.host.data:
                sent += before.sent(TOLD)
        job.feed(EVENTS, records[:20]).host.run()
        job.feed(EVENTS, records[20:]).run(crashes=3, seed=seed + number)
    job.drain()
    sent += job.sent(TOLD)
    assert any(row[0] is not None and row[0].startswith(b"late blocks") for row in sent)
    for mine, beside in groups([encode(name) for name in names], path):
        alone = MovableJob(job_of(1, task, "alone"))
        for records, keys in zip(phases, beside, strict=True):
            alone.feed(EVENTS, [record for record in records if record[0] in keys]).run()
        alone.drain()
        own = [str(name) for name in names if encode(name) in mine]
        assert of_keys(sent, own) == of_keys(alone.sent(TOLD), own)


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
                sent += before.sent(TOTALS) if job.host.data is not before.host.data else Sent()
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
    rescale_module.rescale(job.log, job.job, 3, SETTINGS, embedded=True, stage="sums", assume_keyed=True)
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
