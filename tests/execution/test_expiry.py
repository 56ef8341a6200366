"""Stores with ttl_ms: what is seen, what is deleted and when, in both modes and through crashes (0052)."""

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.core.actions import WriteData
from grete.core.events import DataWritten
from grete.errors import ConfigError, TaskError
from grete.execution.changelog.changelog_writer import DataSlices, RewriteBudget, apply_segment
from grete.ports import StateStore
from grete.protocol.changelog import decode_data
from grete.stores.memory import MemoryStore
from grete.stores.overlay.expiring_store import ExpiringStore, expiry_of, unexpired
from grete.stores.overlay.overlay import Overlay
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from grete.testing import Kit
from tests.execution.harness import Rig

PLAIN, EXPIRING = 1, 2
NAMES = {PLAIN: "plain", EXPIRING: "expiring"}
TTL_MS = 100

events = Topic("events", key=utf8, value=utf8)
firsts = Topic("firsts", key=utf8, value=utf8)


class First(Task):
    """Sends a record whose value it has not seen for TTL_MS."""

    events = Input(events)
    seen = Store("seen", key=utf8, value=int64, ttl_ms=TTL_MS)
    out = Output(firsts)

    def process(self, record: Record[str, str]) -> None:
        if self.seen.get(record.value) is None:
            self.seen.put(record.value, record.timestamp)
            self.out.send(record.key, record.value)


class Host:
    """One task's state with a ttl, and what a changelog holds of it; ``work`` stands for records."""

    def __init__(self, base: StateStore, *, keep_messages: bool = True) -> None:
        self.base, self.now, self.timestamp = base, 0, 0
        self.overlay = Overlay(
            base,
            list(NAMES),
            uncommitted_state_bytes_max=1 << 24,
            read_cache_bytes_max=1 << 20,
            expiring={EXPIRING},
        )
        self.store = ExpiringStore(
            "expiring", self.overlay.store(EXPIRING), TTL_MS, lambda: self.now, lambda: self.timestamp
        )
        self.slices, self.cursor = DataSlices(self.overlay, RewriteBudget()), b""
        self.messages: list[bytes] = []
        self.deleted = self.rounds = 0
        self._keep = keep_messages

    def put(self, key: bytes, value: bytes, timestamp: int) -> None:
        """Put as a record of this time does, which moves event time."""
        self.timestamp = timestamp
        self.store.put(key, value)
        self.now = max(self.now, timestamp)

    def commit(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Commit a checkpoint; ``meanwhile`` runs between its slices."""
        self.overlay.event_time = self.now
        self.overlay.freeze()
        answer = DataWritten(0, 0, self.cursor, round_done=False, more=True)
        while answer.more:
            meanwhile()
            message, answer = self.slices.next(WriteData(1, 1, answer.cursor))
            if message is not None:
                data = decode_data(message)
                self.deleted += sum(value is None for value in data.values)
                self.messages += [message] if self._keep else []
        self.cursor, self.rounds = answer.cursor, self.rounds + answer.round_done
        while not self.overlay.apply_chunk(b"pointer", 50):
            meanwhile()

    def restored(self) -> dict[bytes, bytes]:
        """Return the entries that a restore from the changelog's beginning gives."""
        copy = MemoryStore(NAMES)
        for message in self.messages:
            apply_segment("changelog", copy, message)
        return dict(copy.scan(EXPIRING, b"", None))

    def stored(self) -> dict[bytes, bytes]:
        """Return the entries of the state store, expired or not."""
        return dict(self.base.scan(EXPIRING, b"", None))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(b"abcdefgh"), st.integers(-2 * TTL_MS, TTL_MS)),
        st.tuples(st.just("delete"), st.sampled_from(b"abcdefgh"), st.just(0)),
        st.tuples(st.just("commit"), st.just(0), st.integers(0, TTL_MS)),
    ),
    max_size=60,
)


@hypothesis_settings(max_examples=150)
@given(steps)
def test_reads_are_those_of_a_dict_with_times(taken: list[tuple[str, int, int]]) -> None:
    """Get, get_many and scans hide exactly what is ttl_ms old; state and changelog agree after each checkpoint."""
    host, model = Host(MemoryStore(NAMES)), dict[bytes, tuple[int, bytes]]()
    for number, (what, letter, ms) in enumerate(taken):
        key, value = bytes([letter]), b"%d" % number
        if what == "put":
            at = host.now + ms
            model[key] = at, value
            host.put(key, value, at)
        elif what == "delete":
            model.pop(key, None)
            host.store.delete(key)
        else:

            def later(ms: int = ms) -> None:
                host.now += ms // 10  # records of the next checkpoint move the time while this one is on its way

            host.commit(later)
            assert host.restored() == host.stored()
        alive = {key: value for key, (at, value) in sorted(model.items()) if at + TTL_MS > host.now}
        assert dict(host.store.scan()) == alive
        assert list(host.store.scan(b"b", b"f", reverse=True)) == [
            (key, value) for key, value in sorted(alive.items(), reverse=True) if b"b" <= key < b"f"
        ]
        keys = [bytes([each]) for each in b"abcdefgh"]
        assert host.store.get_many(keys) == [alive.get(key) for key in keys] == [host.store.get(key) for key in keys]


def test_what_the_rewrite_deletes_is_as_old_as_its_checkpoint() -> None:
    """An entry that expires while a checkpoint is on its way is there after a restore from that checkpoint."""
    host = Host(MemoryStore(NAMES))
    host.put(b"old", b"1", 0)
    host.put(b"young", b"2", 60)
    host.commit()
    host.put(b"x", b"3", 120)  # event time of the checkpoint: only ``old`` has expired

    def records_go_on() -> None:
        host.now = 1_000

    host.commit(records_go_on)
    assert sorted(host.stored()) == sorted(host.restored()) == [b"x", b"young"]
    assert {key: expiry_of(stored) for key, stored in host.stored().items()} == {b"x": 220, b"young": 160}
    assert dict(host.store.scan()) == {}


def test_a_key_that_comes_again_while_it_is_deleted_stays() -> None:
    """The delete is below what the same checkpoint, or the next one, has put: in memory, on disk and in the log."""
    host = Host(MemoryStore(NAMES))
    host.put(b"k", b"1", 0)
    host.commit()
    host.put(b"other", b"2", 150)

    def again() -> None:
        if host.store.get(b"k") is None:
            host.put(b"k", b"3", 150)

    host.commit(again)
    assert host.store.get(b"k") == b"3"
    assert (list(host.stored()), list(host.restored())) == ([b"other"], [b"other"])
    host.commit()
    assert host.store.get(b"k") == b"3"
    assert host.stored() == host.restored()
    # a part that is sent ahead of its freeze (D5) may delete a key that the rest of the checkpoint puts again
    host.overlay.event_time = host.now = 400
    host.overlay.store(PLAIN).put(b"p", b"")
    host.overlay.freeze_part()
    more = True
    while more:
        _, answer = host.slices.next(WriteData(1, 1, host.cursor))
        host.cursor, more = answer.cursor, answer.more
    assert b"k" in host.overlay.rewrites.expired[EXPIRING]
    host.put(b"k", b"4", 400)
    host.commit()
    assert dict(unexpired(host.stored().items(), 400)) == {b"k": b"4"}


@pytest.mark.parametrize(("in_order", "each"), [(False, 50), (True, 20)], ids=["hashed", "in the order of time"])
def test_a_day_of_new_ids_keeps_state_and_heap_bounded(tmp_path: Path, in_order: bool, each: int) -> None:
    """Dedup for a day, four virtual days of up to 10,000 ids: what is stored stays below three days', the heap flat."""
    checkpoints = 200  # a day, of ``each`` ids
    host = Host(RocksStore(tmp_path / "state", NAMES, RocksMemory(16 << 20)), keep_messages=False)
    ms, sizes, heaps = TTL_MS * 1_000 // (each * checkpoints), list[int](), list[int]()
    host.store._ttl_ms = ms * each * checkpoints
    draw = random.Random(1)
    for day in range(4):
        for number in range(checkpoints):
            for place in range(each):
                at = (day * checkpoints + number) * each + place
                key = b"%012d" % at if in_order else draw.randbytes(12)
                assert host.store.get(key) is None
                host.put(key, b"", at * ms)
            host.commit()
        if day == 0:
            tracemalloc.start()
        heaps.append(tracemalloc.get_traced_memory()[0])
        sizes.append(len(host.stored()))
    tracemalloc.stop()
    host.base.close()
    assert sizes[0] == each * checkpoints
    assert max(sizes) < 3 * sizes[0]
    assert sizes[3] < 1.5 * sizes[1]
    assert host.deleted > 1.5 * sizes[0]
    assert heaps[3] - heaps[2] < 200_000  # 10,000 timers would be 800 kB


def test_an_idle_task_deletes_nothing_and_a_jump_of_time_is_worked_off() -> None:
    """A checkpoint deletes a multiple of what it has written, so no checkpoint is long; in the end all is gone."""
    host = Host(MemoryStore(NAMES))
    for number in range(20_000):
        host.put(b"%d" % number, b"", 0)
    host.commit()
    host.now = 10 * TTL_MS
    host.slices._budget.deletes = 0.0
    for _ in range(3):
        host.commit()
    assert (host.deleted, len(host.stored())) == (0, 20_000)
    counts = []
    while len(host.stored()) > 100:
        for number in range(100):
            host.put(b"new %d" % number, b"", host.now)
        host.commit()
        counts.append(host.deleted)
    assert max(later - before for before, later in zip([0, *counts], counts, strict=False)) <= 4 * 100 * 3
    assert host.rounds >= 1


# --- on a task ---


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("seed", range(3))
def test_crashes_and_disorder_change_nothing(mode: Mode, seed: int) -> None:
    """Each value comes out once in TTL_MS of event time, whatever dies, with the disk or without."""
    kit, draw = Kit(Job("once", [First], mode=mode)), random.Random(seed)
    expected, seen, now = list[str](), dict[str, int](), 0
    for _ in range(8):
        for _ in range(60):
            value, at = f"v{draw.randrange(40)}", now + draw.randrange(30)
            kit.feed(events, "k", value, timestamp=at)
            if seen.get(value, -1) <= now:
                seen[value] = at + TTL_MS
                expected.append(value)
            now = max(now, at)
        kit.run(crashes=3, seed=draw.randrange(1 << 30))
        assert kit.state(First.seen) == {key: at - TTL_MS for key, at in sorted(seen.items()) if at > now}
    assert [value for _, value in kit.pairs(firsts)] == expected
    kit.crash_all(other_host=True)
    kit.run()
    assert kit.state(First.seen) == {key: at - TTL_MS for key, at in sorted(seen.items()) if at > now}


def test_a_late_record_puts_what_is_as_old_as_it_is() -> None:
    """Its time is the record's, not that of the inputs; so no entry depends on how far other inputs were."""
    rig = Rig(Job("late", [First]))
    rig.rows("events", [(b"k", b"a", 1_000), (b"k", b"b", 950), (b"k", b"c", 850)])
    task = rig.task
    assert list(task.seen.all()) == [("a", 1_000), ("b", 950)]
    rig.rows("events", [(b"k", b"d", 1_060)])
    assert list(task.seen.all()) == [("a", 1_000), ("d", 1_060)]
    task.seen.delete("b")  # it is gone: no tombstone goes to the changelog for it
    rig.commit()
    rig.rows("events", [(b"k", b"b", 1_060)])
    assert [value for _, _, value, _ in rig.external()] == [b"a", b"b", b"c", b"d", b"b"]


class Kept(First):
    """Puts in a timer and at the start."""

    timers = Timers()
    sets = Store("sets", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        self.timers.schedule(record.timestamp + 10, record.value)

    def on_timer(self, timer: Timer) -> None:
        self.seen.put(timer.key, timer.at)

    def init(self) -> None:
        if self.sets.get("started"):
            self.seen.put("start", 0)
        self.sets.put("started", 1)


def test_timers_and_init_put_at_their_own_time() -> None:
    """A timer's entry lives from the timer's time on; init puts at the event time of the state."""
    rig = Rig(Job("timed", [Kept]))
    rig.rows("events", [(b"k", b"a", 0), (b"k", b"b", 90)])
    rig.commit()
    assert list(rig.task.seen.all()) == [("a", 10)]
    rig.rollback()
    assert list(rig.task.seen.all()) == [("a", 10), ("start", 0)]
    rig.rows("events", [(b"k", b"c", 115)])
    assert list(rig.task.seen.all()) == [("b", 100), ("start", 0)]
    rig.rows("events", [(b"k", b"c", 195)])
    assert list(rig.task.seen.all()) == [("b", 100), ("c", 125)]


class Early(First):
    """Puts before there is any time."""

    def init(self) -> None:
        self.seen.put("a", 1)


def test_what_has_no_time_is_refused() -> None:
    """Before the first record there is no event time."""
    with pytest.raises(
        TaskError, match=r"store seen: its entries expire ttl_ms = 100 after .* put this entry in process"
    ):
        Rig(Job("early", [Early]))


@pytest.mark.parametrize("ttl_ms", [0, -1, 1.5, True, "1"])
def test_a_ttl_is_a_number_of_ms(ttl_ms: object) -> None:
    """Anything else is refused where it is written."""
    with pytest.raises(ConfigError, match=r"store 's': ttl_ms = .*: need an int of 1 ms or more"):
        Store("s", key=utf8, value=utf8, ttl_ms=ttl_ms)  # type: ignore[arg-type]  # that is what is tested
