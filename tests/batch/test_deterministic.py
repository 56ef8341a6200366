"""Deterministic stages in batch: the rest live is as if all had been live; and the order of a live run, made again."""

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.api.job import Job
from framework.batch.logical_order import recorded_order
from framework.execution.deterministic.announced_time import AnnouncedTime
from framework.execution.deterministic.outputs import is_of_outputs
from framework.execution.reserved_stores import META, OUTBOX
from framework.logs.memory import MemoryLog
from framework.settings import Settings
from framework.state.commits import all_wirings
from framework.state.recorded_task import recorded_task
from framework.testing import Kit
from protocol.ids import TopicPartition
from protocol.notes import IdleNote
from protocol.partitioner import partition_of
from tests.batch.taking_over import Seen, live, taken_over
from tests.support import delays, matches, watching
from tests.support.local_batch import run_job

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
) -> dict[tuple[int, int, int, bytes], bytes]:
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
    found = {
        (kit.job.stage(stage).ordinal, partition): {store: view.values for store, view in hosted.disk.stores.items()}
        for (stage, partition), hosted in kit._tasks.items()
    }
    log = MemoryLog(kit._data)
    tasks = {w.producer: recorded_task(log, w.changelog) for w in all_wirings(kit.job)}
    orders = {producer: recorded_order(task, task.commits[-1]) for producer, task in tasks.items()}
    results = run_job(kit.job, lambda source: kit._data.partition(source).rows, orders=orders)
    made = {
        task: {store: {k: v for s, k, v in result.state if s == store} for store in found[task]}
        for task, result in results.items()
    }
    assert at_rest(made) == at_rest(found)
    assert any(isinstance(each, IdleNote) for order in orders.values() for each in order.decisions)
