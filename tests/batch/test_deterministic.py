"""Deterministic stages in batch: the rest live is as if all had been live; and the order of a live run, made again."""

from collections import Counter
from collections.abc import Collection, Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.api.jobs.job import Job
from grete.batch.logical_order import LogicalOrder, recorded_order
from grete.execution.deterministic.announced_time import AnnouncedTime
from grete.execution.deterministic.outputs import AT, is_of_outputs, logical_time_of
from grete.execution.timing.reserved_stores import META, OUTBOX, TIMERS
from grete.logs.memory import MemoryLog
from grete.protocol.ids import TopicPartition, producer_id
from grete.protocol.notes import IdleNote
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.recorded_task import recorded_task
from grete.testing import Kit
from tests.batch.taking_over import Seen, live, taken_over
from tests.support import delays, matches, watching
from tests.support.local_batch import run_job
from tests.support.parity_clocks import Remind, Reminded
from tests.support.parity_topics import events, told

Entries = dict[tuple[int, int, int, bytes], bytes]  # stage, partition, store, key → value

records = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9), st.integers(0, 60)), min_size=1, max_size=60)
EVENTS = [TopicPartition("events", number) for number in range(3)]
JOBS = {
    name: Job(f"logical-{name}", [stage.task for stage in code.job.stages], partitions=3, mode="deterministic")
    for name, code in {"timers": delays, "windows": watching, "joins": matches}.items()
}


def fed(job: Job, history: list[tuple[str, int, int]]) -> Kit:
    """Return a kit with the records, the partitions far apart."""
    kit = Kit(job)
    feed(kit, history, [0, 300, 1_000])
    return kit


def feed(kit: Kit, history: list[tuple[str, int, int]], at: list[int]) -> None:
    """Feed records, in each partition in the order of time from ``at`` on."""
    for key, value, gap in history:
        partition = partition_of(key.encode(), 3)
        at[partition] += gap
        kit.feed(delays.events, key, value, timestamp=at[partition])


def plain(seen: Seen) -> tuple[object, ...]:
    """Return the user's state and timers, and what was sent, but for what tells of logical time and of numbers."""
    states = {
        task: {
            store: {k: v for k, v in entries.items() if v is not None}
            for store, entries in stores.items()
            if store not in (META, OUTBOX)
        }
        for task, stores in seen.state.items()
    }
    sent = {place: Counter(row[:3] for row in rows) for place, rows in seen.outputs.items()}
    return states, sent


def at_rest(
    state: Mapping[tuple[int, int], Mapping[int, Mapping[bytes, bytes | None]]],
) -> Entries:
    """Return the entries that a batch makes: no numbers of outputs, and nothing of event time that was to be told."""
    return {
        (*task, store, key): value
        for task, stores in state.items()
        for store, entries in stores.items()
        for key, value in entries.items()
        if value is not None and not (store == META and (is_of_outputs(key) or AnnouncedTime.is_due(key, value)))
    }


@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=3, deadline=None)
@given(history=records, data=st.data())
def test_the_rest_live_is_as_if_all_had_been_live(
    name: str, history: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """Timers, windows of three kinds and joins, behind each other: the same state by key, the same outputs."""
    one, other = fed(JOBS[name], history), fed(JOBS[name], history)
    ends = {p: len(one._data.partition(p).rows) for p in EVENTS}
    cut = {p: data.draw(st.integers(min(1, end), end)) for p, end in ends.items()}
    sizes = Settings(batch_bytes_max=data.draw(st.sampled_from([60, 300, 1 << 16])))
    assert plain(taken_over(other, cut, sizes)) == plain(live(one))


@pytest.mark.parametrize("name", JOBS)
def test_the_order_of_a_live_run_is_made_again(name: str) -> None:
    """Every entry of every store is the same to the byte, logical times and event times included, through crashes."""
    random = Random(name)
    history = [(random.choice("abcdef"), random.randint(1, 9), random.randint(0, 60)) for _ in range(60)]
    kit = fed(JOBS[name], history)
    kit.run(crashes=6, seed=3)
    kit.run()
    made, found, orders = made_again(kit)
    assert made == found
    assert any(isinstance(each, IdleNote) for order in orders for each in order.decisions)


def made_again(kit: Kit) -> tuple[Entries, Entries, Collection[LogicalOrder]]:
    """Return the entries of a batch in the recorded order, those of live tasks, and the orders of the tasks."""
    found = {
        (kit.job.stage(stage).ordinal, partition): {store: view.values for store, view in hosted.disk.stores.items()}
        for (stage, partition), hosted in kit._tasks.items()
    }
    log = MemoryLog(kit._data)
    tasks = {w.producer: recorded_task(log, w.changelog) for w in all_wirings(kit.job)}
    orders = {producer: recorded_order(task, task.commits[-1]) for producer, task in tasks.items()}
    reached = {producer_id(*task): logical_time_of(stores[META][AT] or b"") for task, stores in found.items()}
    results = run_job(kit.job, lambda source: kit._data.partition(source).rows, orders=orders, reached_us=reached)
    made = {
        task: {store: {k: v for s, k, v in result.state if s == store} for store in found[task]}
        for task, result in results.items()
    }
    return at_rest(made), at_rest(found), orders.values()


CLOCK = Job("clock", [Remind, Reminded], partitions=2, mode="deterministic")


def ring(kit: Kit, numbers: range) -> None:
    """Feed records, some time apart: timers that they set fire between them and behind them."""
    for number in numbers:
        kit.feed(events, "abcdef"[number % 6], number % 11, timestamp=1_500_000_000_000 + number)
        if number % 3 == 0:
            kit.run()
            kit.advance(13)


def test_wall_clock_timers_fire_again_at_their_places() -> None:
    """Between records and behind the last one, through crashes: the same state to the byte."""
    kit = Kit(CLOCK)
    ring(kit, range(30))
    kit.run(crashes=6, seed=3)
    kit.advance(50)
    ring(kit, range(30, 40))
    made, found, _ = made_again(kit)
    assert made == found
    assert sum(entry[2] == TIMERS for entry in found) >= 3  # those that wait for years
    assert len(kit.pairs(told("reminded"))) > 30


def test_timers_of_history_fire_behind_it() -> None:
    """They are long due, and the stage behind has passed their time: each fires once the job is live."""
    kit = Kit(CLOCK)
    for number in range(20):
        kit.feed(events, "abcdef"[number % 6], number % 7, timestamp=1_500_000_000_000 + number)
    taken_over(kit, {place: len(kit._data.partition(place).rows) for place in EVENTS[:2]})
    kit.advance(200)
    again = [number for number in range(20) if number % 10 == 7]  # those set themselves thrice
    expected = Counter("abcdef"[number % 6] for number in [*range(20), *3 * again])
    assert Counter(key for key, _ in kit.pairs(told("reminded"))) == expected
