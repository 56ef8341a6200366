"""Windows, joins and all that goes by event time, moved between tasks that are not equally far (0079)."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from grete import (
    Every,
    HoppingWindow,
    Input,
    IntervalJoin,
    Job,
    Key,
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
from grete.api.serdes.key import PartitionBy, partition_by
from grete.api.serdes.serde import Serde, functions_of
from grete.api.tasks.mode import Mode
from grete.protocol.partitioner import partition_of
from grete.state.write import rescale as rescale_module
from tests.state.moving_host import Fed, MovableJob, Sent

BEGIN_MS = 1_700_000_000_000
EVENTS, TOLD = "events", "told"
PAIR: Serde[Any] = Key(utf8, int64)


@pytest.fixture(autouse=True)
def not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for live workers of these jobs: theirs are in this process."""
    monkeypatch.setattr(rescale_module, "refuse_if_owned", lambda *_: None)


def word(key: Any) -> str:
    """Return a key as one word."""
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


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
        patience = Timers(key=serde)
        told = Output(out)

        def process(self, record: Record[Any, int]) -> None:
            key, at, value, name = record.key, record.timestamp, record.value, word(record.key)
            for window in (self.blocks, self.hops, self.near, self.visits):
                if not window.update(key, at, lambda sum_: (sum_ or 0) + value):
                    self.told.send(f"late {window.name} {name}", value)
            put = self.joined.put_left if value % 2 else self.joined.put_right
            if not put(key, at, value):
                self.told.send(f"late joined {name}", value)
            self.told.send(f"recent {name}", self.recent.get(key, -1))
            self.recent.put(key, value)
            self.told.send(f"known {name}", self.known.get(key, at - 100, -1))
            self.known.put(key, at, value)
            self.patience.schedule(at + 75, key)

        def on_window(self, window: Window[Any, int]) -> None:
            if window.final:
                self.told.send(f"{window.name} {word(window.key)} {window.start} {window.end}", window.value)

        def on_join(self, pair: Pair[Any, int, int]) -> None:
            self.told.send(f"joined {word(pair.key)} {pair.left} {pair.right}", 0)

        def on_timer(self, timer: Timer[Any]) -> None:
            self.told.send(f"timer {word(timer.key)}", timer.at)

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


def groups(
    keys: Sequence[bytes], path: Sequence[int], place: PartitionBy = partition_of
) -> Iterator[tuple[list[bytes], list[list[bytes]]]]:
    """Yield keys that are in one partition all the way, and those that are in it beside them in each phase."""
    ways: dict[tuple[int, ...], list[bytes]] = {}
    for key in keys:
        ways.setdefault(tuple(place(key, count) for count in path), []).append(key)
    for way, mine in ways.items():
        beside = [[key for key in keys if place(key, count) == number] for count, number in zip(path, way, strict=True)]
        yield mine, beside


def of_keys(sent: Sent, names: Sequence[str]) -> Sent:
    """Return the records that were sent of these keys: the second word of each key tells."""
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
        *((seed, (2, 3, 2), PAIR, "aligned") for seed in (15, 16)),
        (17, (2, 4, 6), PAIR, "aligned"),
        (18, (3, 1, 2), PAIR, "deterministic"),
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
    names: list[Any] = [*range(-4, 5)]
    if serde is not int64:
        names = [f"k{number}" if serde is utf8 else (f"k{number % 5}", number) for number in range(9)]
    task = by_time(serde)
    phases = phases_of(seed, names, encode, len(path))
    job = MovableJob(job_of(path[0], task, mode=mode))
    sent = Sent()
    for number, (partitions, records) in enumerate(zip(path, phases, strict=True)):
        if number:
            before = job
            job = before.moved(partitions)
            if job.host.history.data is not before.host.history.data:
                sent += before.sent(TOLD)
        job.feed(EVENTS, records[:20]).host.run()
        job.feed(EVENTS, records[20:]).run(crashes=3, seed=seed + number)
    job.drain()
    sent += job.sent(TOLD)
    assert any(row[0] is not None and row[0].startswith(b"late blocks") for row in sent)
    for mine, beside in groups([encode(name) for name in names], path, partition_by(serde)):
        alone = MovableJob(job_of(1, task, "alone"))
        for records, keys in zip(phases, beside, strict=True):
            alone.feed(EVENTS, [record for record in records if record[0] in keys]).run()
        alone.drain()
        own = [word(name) for name in names if encode(name) in mine]
        assert of_keys(sent, own) == of_keys(alone.sent(TOLD), own)
