"""Feeds of several partitions, out of order, and what a test sees of them: records, text, hours that pass."""

import random

import pytest

from grete import Input, Job, Output, Record, Serde, Task, Topic, json, utf8
from grete.errors import ConfigError
from grete.testing import Kit
from grete.testing.script import KitCall
from tests.testing.jobs import Count, Minutes, aligned, lines, minutes, per_minute, totals, views

NOON = 1_700_000_040_000 // 60_000 * 60_000
HOUR_MS = 3_600_000


def test_disorder_is_bounded_and_repeats() -> None:
    """None comes behind one that is later by more than the bound; the seed is the order; 0 sorts."""
    records = [("k", str(at), NOON + at) for at in range(0, 5_000, 7)]
    orders = []
    for disorder_ms, seed in ((300, 1), (300, 1), (300, 2), (0, 1)):
        kit = Kit(minutes)
        kit.feed_all(views, records, disorder_ms=disorder_ms, seed=seed)
        times = [record.timestamp for record in kit.fed(views)]
        assert sorted(times) == [at for _, _, at in records]
        assert all(at + disorder_ms >= max(times[: index + 1]) for index, at in enumerate(times))
        orders.append(times)
    assert orders[0] == orders[1] != orders[2]
    assert orders[3] == sorted(orders[3])
    assert orders[0] != orders[3]


@pytest.mark.parametrize("seed", range(3))
def test_windows_depend_neither_on_order_nor_on_density(seed: int) -> None:
    """One partition has a view each second, one three in an hour; each minute has its number, in any order."""
    dense = [("dense", "ann", NOON + 1_000 * second) for second in range(0, 3_600, 5)]
    sparse = [("sparse", "bob", NOON + minute * 60_000) for minute in (1, 30, 59)]
    kit = Kit(minutes, partitions=2)
    kit.feed_all(views, sparse, partition=0, disorder_ms=20_000, seed=seed)
    kit.feed_all(views, dense, partition=1, disorder_ms=20_000, seed=seed)
    kit.drain()
    assert kit.pairs(per_minute, partition=kit.outputs(per_minute)[0].partition)
    assert sorted(value for key, value in kit.pairs(per_minute) if key == "dense") == [
        [NOON + 60_000 * minute, 12] for minute in range(60)
    ]
    assert sorted(value for key, value in kit.pairs(per_minute) if key == "sparse") == [
        [NOON + 60_000 * minute, 1] for minute in (1, 30, 59)
    ]
    assert kit.state(Minutes.counts.panes) == {}


def test_records_without_a_timestamp_have_no_order_to_shuffle() -> None:
    """Without one they come in the order given, at the kit's clock."""
    kit = Kit(aligned, partitions=2)
    kit.feed_all(lines, [("k", "a"), ("k", "b", 5)], partition=1)
    assert [(r.value, r.timestamp, r.partition) for r in kit.fed(lines)] == [("a", kit.now_ms, 1), ("b", 5, 1)]
    assert kit.fed(lines, partition=0) == []
    with pytest.raises(ConfigError, match=r"disorder_ms = 9 needs \(key, value, timestamp\)"):
        kit.feed_all(lines, [("k", "a")], disorder_ms=9)
    assert len(kit.fed(lines)) == 2


def test_outputs_and_state_are_of_one_partition_or_all() -> None:
    """A key is where its partitioner puts it; together the partitions are the whole."""
    kit = Kit(aligned, partitions=3)
    kit.feed_all(lines, [(str(number), f"w{number}") for number in range(20)])
    kit.run()
    parts = [kit.pairs(totals, partition) for partition in range(3)]
    assert [bool(part) for part in parts] == [True, True, True]
    assert [pair for part in parts for pair in part] == kit.pairs(totals)
    states = [kit.state(Count.counts, partition) for partition in range(3)]
    assert sum(map(len, states)) == 20
    assert [set(state) for state in states] == [{key for key, _ in part} for part in parts]
    with pytest.raises(ConfigError, match="topic totals has partitions 0 to 2, not 3"):
        kit.outputs(totals, 3)


def test_hours_take_no_more_steps_than_a_moment() -> None:
    """A job at rest takes few steps for a hundred hours, and with timers as few as it has timers."""
    kit = Kit(minutes, partitions=2)
    kit.feed_all(views, [("home", "ann", NOON), ("prices", "bob", NOON + 1)])
    kit.run()
    before = kit.steps
    kit.advance(100 * HOUR_MS)
    assert kit.steps - before < 50


def test_a_text_has_all_that_is_committed() -> None:
    """Topics and stores, partition by partition, key by key; a test may name what it wants."""
    kit = Kit(aligned, partitions=2)
    kit.feed(lines, "k", "b a b", timestamp=NOON, headers=[("who", b"me")])
    kit.feed(lines, "k", "or", timestamp=-(10**16))
    kit.run()
    assert kit.text(totals, Count.counts) == kit.text()
    assert kit.text(Count.counts) == (
        "store count/counts, partition 0\n  'a': 1\n  'b': 2\nstore count/counts, partition 1\n  'or': 1\n"
    )
    assert kit.text(totals) == (
        "topic totals, partition 0\n"
        "  2023-11-14T22:14:00.000Z  'a': 1\n"
        "  2023-11-14T22:14:00.000Z  'b': 1\n"
        "  2023-11-14T22:14:00.000Z  'b': 2\n"
        "topic totals, partition 1\n"
        "  -10000000000000000  'or': 1\n"
    )


class Opaque:
    """A value whose text is its address."""

    def __init__(self, text: str) -> None:
        self.text = text


class OpaqueSerde:
    """Writes it as its text."""

    name = "opaque"

    def encode(self, value: Opaque) -> bytes:
        return value.text.encode()

    def decode(self, data: bytes) -> Opaque:
        return Opaque(data.decode())


opaque: Serde[Opaque] = OpaqueSerde()
things = Topic("things", key=utf8, value=opaque)
thoughts = Topic("thoughts", key=utf8, value=json)


class Hand(Task):
    """Hands a value on, and the headers."""

    thoughts = Input(thoughts)
    out = Output(things)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, Opaque(record.value), headers=record.headers)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_text_is_the_same_in_each_run(mode: str) -> None:
    """A value without a text of its own is shown by its bytes; headers of ours are left out, those of users are not."""
    kit = Kit(Job("handing", stages=[Hand], mode="deterministic" if mode == "deterministic" else "aligned"))
    kit.feed(thoughts, "k", "x", timestamp=NOON, headers=[("who", b"me")])
    kit.run()
    assert kit.text() == "topic things, partition 0\n  2023-11-14T22:14:00.000Z  'k': b'x'  who=b'me'\n"


def test_a_script_plays_again() -> None:
    """Another kit that plays it has been fed the same at the same times; its text is code."""
    kit = Kit(aligned, partitions=2)
    draw = random.Random(1)
    for number in range(10):
        kit.feed(lines, None, f"w{number % 3}", headers=[("n", b"%d" % number)])
        kit.advance(draw.randint(1, 500))
    kit.stop()
    again = Kit(aligned, partitions=2)
    again.play(kit.script)
    assert (again.fed(lines), again.text(), again.now_ms) == (kit.fed(lines), kit.text(), kit.now_ms)
    assert repr(kit.script[-1]) == "stop()"
    assert repr(KitCall("feed", (lines, "k", "a b"), {"timestamp": 5})) == "feed(lines, 'k', 'a b', timestamp=5)"


def test_a_kit_that_is_closed_has_let_go() -> None:
    """As a context it ends all its processes; nothing that was not committed is."""
    with Kit(aligned) as kit:
        kit.feed(lines, "k", "a")
        kit.process()
        assert kit.counters["records"] > 0
    assert all(task.process is None for task in kit._tasks.values())
    assert kit.pairs(totals) == []
