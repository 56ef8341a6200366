"""Without a guarantee: no record is processed twice, whatever dies or wakes up; a crash loses one interval at most."""

from collections import Counter
from functools import partial

import pytest

from grete import (
    ById,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timers,
    Topic,
    TumblingWindow,
    int64,
    utf8,
)
from grete.errors import ConfigError
from grete.execution.inputs.held_input import HeldInput
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing.kit import Kit
from tests.execution.struck_world import World

INTERVAL_MS = 20
lines = Topic("lines", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=utf8)
marks = Topic("marks", key=utf8, value=utf8)
LINES, WORDS = TopicPartition("lines", 0), TopicPartition("words", 0)
ran: list[tuple[str, str]] = []  # (stage, record), by all processes: effects that no crash takes back


class Split(Task):
    """The first stage: a record goes on under another key."""

    lines = Input(lines)
    taken = Store("taken", key=utf8, value=int64)
    out = Output(words)

    def process(self, record: Record[str, str]) -> None:
        ran.append(("split", record.value))
        self.taken.put(record.value, self.taken.get(record.value, 0) + 1)
        self.out.send(record.value, record.value)


class Mark(Task):
    """The second one: counts each record, and shows it outside."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(marks)

    def process(self, record: Record[str, str]) -> None:
        ran.append(("mark", record.value))
        self.counts.put(record.value, self.counts.get(record.value, 0) + 1)
        self.out.send(record.key, record.value)


def a_kit() -> Kit:
    ran.clear()
    settings = Settings(processing_guarantee="none", checkpoint_interval_ms=INTERVAL_MS, batch_bytes_max=150)
    return Kit(Job("marking", [Split, Mark], partitions=2), settings=settings)


class Marking(World):
    """Counts what is processed behind a successor's back."""

    def wake(self) -> None:
        """Let one that slept go on."""
        before = len(ran)
        super().wake()
        self.seen["records processed by sleepers"] += len(ran) - before


@pytest.mark.parametrize("seeds", [range(15), pytest.param(range(15, 40), marks=pytest.mark.prove)])
def test_no_record_is_processed_twice_whatever_dies_or_wakes_up(seeds: range) -> None:
    """Nor does it count twice in a store, nor leave twice. What is lost was in a process that died or was fenced."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = Marking(a_kit(), lines, seed)
        world.run()
        twice = [each for each, count in Counter(ran).items() if count > 1]
        assert twice == [], seed
        outside = Counter(value for _, value in world.kit.pairs(marks))
        assert set(outside.values()) <= {1}, seed
        assert outside.keys() <= {record for stage, record in ran if stage == "mark"}
        for store in (Split.taken, Mark.counts):
            assert set(world.kit.state(store).values()) <= {1}, seed
        seen += world.seen
        seen["lost"] += world.fed - len(outside)
        seen["lost without a strike"] += 0 if world.seen["strikes"] else world.fed - len(outside)
    assert seen["strikes"] > 2 * len(seeds)
    assert seen["lost"] > 2 * len(seeds)
    assert seen["records processed by sleepers"] > 0
    assert seen["lost without a strike"] == 0


def fed_each_interval(kit: Kit, intervals: int, each: int) -> int:
    """Feed ``each`` records and let an interval pass, ``intervals`` times; return the number of records."""
    for number in range(intervals * each):
        kit.feed(lines, f"k{number}", f"r{number}", partition=0)
        if number % each == each - 1:
            kit.advance(INTERVAL_MS)
    return intervals * each


@pytest.mark.parametrize("other_host", [False, True])
def test_a_crash_loses_no_more_than_one_interval(other_host: bool) -> None:
    """The state loses what came in the interval before the last commit: its positions are there, its effects not."""
    kit, each = a_kit(), 7
    fed = fed_each_interval(kit, 10, each)
    kit.crash(Split, 0, other_host=other_host)
    kit.run()
    lost = fed - len(kit.state(Split.taken))
    assert 0 < lost <= each
    assert fed - len([record for stage, record in ran if stage == "split"]) <= each


def test_a_record_is_not_processed_before_a_commit_has_its_position() -> None:
    """While time does not pass there is no commit, and nothing runs; then one does, and each stage adds one."""
    kit = a_kit()
    kit.advance(3 * INTERVAL_MS)
    kit.feed(lines, "k", "r")
    kit.process()
    assert ran == []
    kit.advance(INTERVAL_MS)
    assert ran == [("split", "r")]
    kit.advance(INTERVAL_MS)
    assert ran == [("split", "r"), ("mark", "r")]


def test_a_graceful_stop_loses_nothing() -> None:
    """A task that is asked to stop first processes what it has read: no successor reads it again."""
    kit = a_kit()
    kit.advance(3 * INTERVAL_MS)
    for number in range(30):
        kit.feed(lines, f"k{number}", f"r{number}")
        if number % 10 == 9:
            kit.stop()
    kit.run()
    assert Counter(ran) == Counter((stage, f"r{number}") for stage in ("split", "mark") for number in range(30))
    assert kit.state(Mark.counts) == {f"r{number}": 1 for number in range(30)}


def test_a_record_that_cannot_be_processed_is_not_tried_again() -> None:
    """Its position is committed before its code fails, so the successor goes on behind it."""

    class Fails(Split):
        """Fails on one record."""

        def process(self, record: Record[str, str]) -> None:
            if record.value == "bad":
                raise ValueError("bad")
            super().process(record)

    ran.clear()
    kit = Kit(Job("failing", [Fails]), processing_guarantee="none")
    for value in ("a", "bad"):
        kit.feed(lines, "k", value)
    with pytest.raises(Exception, match="ValueError: bad"):
        kit.run()
    kit.feed(lines, "k", "b")
    kit.run()
    assert [record for _, record in ran] == ["a", "b"]


def _timed(**declarations: object) -> type[Task]:
    return type("Timed", (Split,), {"name": "timed", **declarations})


class Fires(Split):
    """Has timers."""

    name = "timed"
    timers = Timers()

    def on_timer(self, timer: object) -> None:
        raise AssertionError(timer)


class Closes(Split):
    """Has a window."""

    name = "timed"
    minutes = TumblingWindow("minutes", key=utf8, value=int64, size_ms=60_000)

    def on_window(self, window: object) -> None:
        raise AssertionError(window)


class Drops(Split):
    """Has an input that drops repeats."""

    name = "timed"
    lines = Input(lines, deduplicate=ById(lambda record: record.value, horizon_ms=1_000))


class Forgets(Split):
    """Has a store whose entries expire."""

    name = "timed"
    known = Store("known", key=utf8, value=int64, ttl_ms=1_000)


@pytest.mark.parametrize("task", [Fires, Closes, Drops, Forgets])
def test_what_a_crash_could_let_happen_twice_is_refused(task: type[Task]) -> None:
    """Timers, windows and known ids are state: a crash takes back that a timer has fired."""
    with pytest.raises(
        ConfigError, match=r"stage 'timed' has timers, a window, an input with deduplicate or a store with ttl_ms"
    ):
        Kit(Job("timed", [task]), processing_guarantee="none").run()


def test_work_is_held_until_its_commit_is_valid() -> None:
    """In the order of reading, by commits: what was read since the freeze waits for the next one."""
    held, done = HeldInput(), list[int]()
    for number in (1, 2):
        held.take(LINES, 10, partial(done.append, number))
    held.froze()
    held.take(WORDS, 5, partial(done.append, 3))
    assert not held.may_run
    assert held.uncovered_bytes == 25
    held.committed()
    assert held.uncovered_bytes == 5
    held.run()
    assert done == [1]
    assert held.holds(LINES)
    held.run()
    assert done == [1, 2]
    assert (held.holds(LINES), held.holds(WORDS)) == (False, True)
    assert not held.empty
    held.froze()
    held.committed()
    held.run()
    assert done == [1, 2, 3]
    assert held.empty
