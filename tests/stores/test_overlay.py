"""The overlay against a model of plain dicts: reads, scans, freezes, chunks, undo, rollback and sweep in any order."""

import struct
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from framework.errors import ConfigError, Halted, TransientError
from framework.ports import Write
from framework.stores.memory import MemoryDisk, MemoryStore
from framework.stores.overlay import ENTRY_BYTES, Overlay

IDS = (1, 4)
Flat = dict[tuple[int, bytes], bytes]  # (store id, key) → value: the state of all stores
Row = tuple[bytes, bytes]

ids = st.sampled_from(IDS)
KEYS = [b"", b"\0", b"a", b"a\0", b"b", b"\xff"]  # few, so that the layers hold the same ones
keys = st.sampled_from(KEYS)
values = st.binary(max_size=2)
changes = st.lists(st.tuples(ids, keys, st.none() | values), min_size=1, max_size=8)


class FullDisk(MemoryStore):
    """A store whose writes fail, with nothing written, as long as it is full."""

    full = False

    def write(self, writes: Iterable[Write], pointer: bytes | None = None) -> None:
        """Write unless the disk is full."""
        if self.full:
            list(writes)
            raise TransientError("the disk is full")
        super().write(writes, pointer)


class OverlayMachine(RuleBasedStateMachine):
    """Any order of calls that a task may make."""

    @initialize(clean_bytes_max=st.sampled_from([0, 300, 1000, 1 << 20]))
    def start(self, clean_bytes_max: int) -> None:
        """Begin with an empty state store; a small cache of clean reads ages often."""
        self.clean_bytes_max = clean_bytes_max
        self.disk = MemoryDisk()
        self.version = 0
        self.committed: Flat = {}
        self.open_overlay()

    def open_overlay(self) -> None:
        """Start as after a crash: what is on disk, no layers."""
        self.base = FullDisk({store: str(store) for store in IDS}, self.disk)
        self.overlay = Overlay(self.base, IDS, layer_bytes_max=1 << 20, clean_bytes_max=self.clean_bytes_max)
        self.current: Flat = dict(self.committed)
        self.frozen: Flat | None = None
        self.dirty: set[tuple[int, bytes]] = set()
        self.frozen_dirty: set[tuple[int, bytes]] = set()
        self.applied = 0
        self.scans: list[tuple[Iterator[Row], list[Row]]] = []
        self.cursor = b""
        self.standing: set[tuple[int, bytes]] = set()  # keys that stand in the changelog since the round began

    # --- The task ---

    def change(self, writes: list[tuple[int, bytes, bytes | None]]) -> None:
        """Put and delete keys, some of which are not there."""
        for store, key, value in writes:
            if value is None:
                self.overlay.store(store).delete(key)
                self.current.pop((store, key), None)
            else:
                self.overlay.store(store).put(key, value)
                self.current[store, key] = value
            self.dirty.add((store, key))

    @rule(writes=changes)
    def record(self, writes: list[tuple[int, bytes, bytes | None]]) -> None:
        """Process a record."""
        self.change(writes)

    @rule(writes=changes, scanned=ids, undo=st.booleans())
    def record_with_undo(self, writes: list[tuple[int, bytes, bytes | None]], scanned: int, undo: bool) -> None:
        """Process a record that may raise; scans that run meanwhile, its own too, keep seeing what they saw."""
        before = dict(self.current), set(self.dirty)
        self.overlay.begin_undo()
        self.change(writes)
        self.scan(scanned, b"", None)
        if undo:
            self.overlay.undo()
            self.current, self.dirty = before
        else:
            self.overlay.end_undo()

    @rule(store=ids, key=keys)
    def get(self, store: int, key: bytes) -> None:
        """Read one key, which may then be kept as a clean read."""
        assert self.overlay.store(store).get(key) == self.current.get((store, key))

    @rule()
    def get_everything(self) -> None:
        """Read all keys of all stores."""
        for store in IDS:
            for key in KEYS:
                self.get(store, key)

    @rule(store=ids, start=keys, end=st.none() | keys)
    def scan(self, store: int, start: bytes, end: bytes | None) -> None:
        """Begin a scan; it is read on later, when other things have happened."""
        expected = [
            (key, value)
            for (number, key), value in sorted(self.current.items())
            if number == store and key >= start and (end is None or key < end)
        ]
        self.scans.append((self.overlay.store(store).scan(start, end), expected))

    @precondition(lambda self: self.scans)
    @rule(index=st.integers(0, 9), count=st.integers(1, 9))
    def read_on(self, index: int, count: int) -> None:
        """Read some rows of a scan: as the state was when it began."""
        scan, expected = self.scans[index % len(self.scans)]
        for _ in range(count):
            assert next(scan, None) == (expected.pop(0) if expected else None)

    # --- The commit ---

    @precondition(lambda self: self.frozen is None)
    @rule()
    def freeze(self) -> None:
        """Freeze: the dirty keys are what was written since the last time, sorted."""
        self.overlay.freeze()
        self.frozen, self.frozen_dirty, self.dirty = dict(self.current), self.dirty, set()
        self.applied = 0
        self.version += 1
        self.standing |= self.frozen_dirty
        assert list(self.overlay.frozen_items()) == [
            (*place, self.frozen.get(place)) for place in sorted(self.frozen_dirty)
        ]
        assert self.overlay.frozen_size == len(self.frozen_dirty)

    @precondition(lambda self: self.frozen is not None)
    @rule(keys_max=st.integers(1, 4), full=st.booleans())
    def apply_chunk(self, keys_max: int, full: bool) -> None:
        """Write a chunk, perhaps after a first attempt that failed; the pointer comes with the last one only."""
        assert self.frozen is not None
        old = self.disk.pointer
        if full:
            self.base.full = True
            with pytest.raises(TransientError):
                self.overlay.apply_chunk(b"%d" % self.version, keys_max)
            self.base.full = False
        done = self.overlay.apply_chunk(b"%d" % self.version, keys_max)
        self.applied += 1
        assert self.disk.pointer == (b"%d" % self.version if done else old)
        assert self.overlay.has_frozen is not done
        if done:
            self.committed, self.frozen, self.applied = self.frozen, None, 0
            stored = {(store, key): value for store in IDS for key, value in self.base.scan(store, b"", None)}
            assert stored == self.committed

    @rule()
    def drop_open(self) -> None:
        """Roll back to the frozen version, or to the last one (R4)."""
        self.overlay.drop_open()
        self.current = dict(self.committed if self.frozen is None else self.frozen)
        self.dirty = set()

    @precondition(lambda self: not self.applied)
    @rule(crash=st.booleans(), loaded=st.just([]) | changes)
    def drop_all(self, crash: bool, loaded: list[tuple[int, bytes, bytes | None]]) -> None:
        """Start from what is in the state store, which may be loaded anew: no read remembers what was there before."""
        if not crash:
            self.overlay.drop_all()
            assert not self.overlay.has_frozen
        for store, key, value in loaded:
            self.base.load(store, [key], [value])
            self.committed.pop((store, key), None)
            if value is not None:
                self.committed[store, key] = value
        if crash:
            self.open_overlay()
            return
        self.current, self.frozen = dict(self.committed), None
        self.dirty, self.frozen_dirty = set(), set()
        self.cursor, self.standing = b"", set()
        self.get_everything()

    @precondition(lambda self: self.frozen is not None)
    @rule(keys_max=st.integers(1, 6), bytes_max=st.integers(1, 12))
    def sweep(self, keys_max: int, bytes_max: int) -> None:
        """A slice is the live, clean part of the frozen version between two cursors, whatever has been applied (K2)."""
        assert self.frozen is not None
        start = self.cursor
        if not start:
            self.standing = set(self.frozen_dirty)
        swept, self.cursor, done = self.overlay.sweep(start, keys_max, bytes_max)
        assert done == (self.cursor == b"")
        assert len(swept) <= keys_max
        assert sum(len(key) + len(value) for _, key, value in swept[:-1]) < bytes_max

        def within(place: tuple[int, bytes]) -> bool:
            encoded = struct.pack(">h", place[0]) + place[1]
            return (not start or encoded > start) and (done or encoded <= self.cursor)

        clean = [place for place in sorted(self.frozen) if within(place) and place not in self.frozen_dirty]
        assert swept == [(*place, self.frozen[place]) for place in clean]
        self.standing |= set(clean)
        if done:
            assert set(self.frozen) <= self.standing  # a round re-appends every live key

    @precondition(lambda self: not self.applied)
    @rule(writes=changes, keys_max=st.integers(1, 6), keys_more=st.integers(1, 3), full=st.booleans())
    def commit(self, writes: list[tuple[int, bytes, bytes | None]], keys_max: int, keys_more: int, full: bool) -> None:
        """A whole commit at once, read between its chunks, so that many versions follow each other in one run."""
        if self.frozen is None:
            self.change(writes)
            self.freeze()
        self.sweep(keys_max, 1 << 20)
        for _ in range(len(self.frozen_dirty) + 1):  # a lost chunk must fail, not hang
            if self.frozen is not None:
                self.apply_chunk(keys_more, full)
                self.get_everything()
        assert self.frozen is None

    @invariant()
    def open_bytes_are_never_too_low(self) -> None:
        """What is dirty is accounted for: the bound cannot be passed unseen (A9)."""
        least = sum(len(key) + len(self.current.get((store, key), b"")) + ENTRY_BYTES for store, key in self.dirty)
        assert self.overlay.open_bytes >= least


OverlayMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestOverlay = OverlayMachine.TestCase


@pytest.fixture
def base() -> MemoryStore:
    """Return an empty state store."""
    return MemoryStore({store: str(store) for store in IDS})


def overlay_of(base: MemoryStore, layer_bytes_max: int = 1 << 20, clean_bytes_max: int = 1 << 20) -> Overlay:
    """Return an overlay of both stores."""
    return Overlay(base, IDS, layer_bytes_max=layer_bytes_max, clean_bytes_max=clean_bytes_max)


def test_a_layer_beyond_its_bound_stops_the_task_naming_the_setting(base: MemoryStore) -> None:
    """No layer grows without end; over all stores together, deletes included (A9)."""
    overlay = overlay_of(base, layer_bytes_max=100_000)
    written = 0

    def write() -> None:
        nonlocal written
        for written in range(10_000):
            store = overlay.store(IDS[written % 2])
            if written % 3:
                store.put(b"%06d" % written, b"value")
            else:
                store.delete(b"%06d" % written)

    with pytest.raises(Halted, match=r"layer_bytes_max = 100000") as caught:
        write()
    assert 100_000 / (ENTRY_BYTES + 11) < written < 110_000 / (ENTRY_BYTES + 6)
    assert f"{written + 1} keys" in str(caught.value)


def test_a_key_that_is_put_again_and_again_does_not_fill_the_layer(base: MemoryStore) -> None:
    """A counter that is put a million times is one entry, not a reason to stop (A9)."""
    overlay = overlay_of(base, layer_bytes_max=10_000)
    for i in range(5_000):
        overlay.store(1).put(b"counter", b"%d" % i)
    assert overlay.open_bytes <= 11_000


def test_the_bound_counts_anew_after_a_freeze_and_a_drop(base: MemoryStore) -> None:
    """Only the open layer counts (A9)."""
    overlay = overlay_of(base, layer_bytes_max=10_000)
    for round_number in range(6):
        for i in range(50):
            overlay.store(1).put(b"%d-%d" % (round_number, i), b"value")
        if round_number % 2:
            overlay.drop_open()
        else:
            overlay.freeze()
            while not overlay.apply_chunk(b"pointer", keys_max=7):
                pass
        assert overlay.open_bytes == 0


def test_a_commit_without_dirty_keys_writes_the_pointer(base: MemoryStore) -> None:
    """A version in which nothing changed moves the pointer all the same."""
    overlay = overlay_of(base)
    overlay.freeze()
    assert (overlay.frozen_size, list(overlay.frozen_items())) == (0, [])
    assert overlay.apply_chunk(b"pointer") is True
    assert (base.pointer(), overlay.has_frozen) == (b"pointer", False)


def test_undo_takes_back_several_writes_of_one_key(base: MemoryStore) -> None:
    """The oldest value comes back, not one of the record's own, and the writes before the record stay."""
    overlay = overlay_of(base)
    store = overlay.store(1)
    store.put(b"before", b"0")
    overlay.begin_undo()
    for value in (b"1", b"2"):
        store.put(b"before", value)
        store.put(b"new", value)
        list(store.scan())
    store.delete(b"before")
    overlay.undo()
    assert list(store.scan()) == [(b"before", b"0")]
    assert (store.get(b"before"), store.get(b"new")) == (b"0", None)


def test_undo_takes_back_a_delete(base: MemoryStore) -> None:
    """A key that the record only deleted is there again, whichever layer it was in."""
    base.write([(1, b"base", b"1")])
    overlay = overlay_of(base)
    store = overlay.store(1)
    store.put(b"open", b"2")
    overlay.begin_undo()
    store.delete(b"base")
    store.delete(b"open")
    overlay.undo()
    assert (store.get(b"base"), store.get(b"open")) == (b"1", b"2")


def test_a_layer_larger_than_the_cache_leaves_no_outdated_reads(base: MemoryStore) -> None:
    """What was read before and does not fit any more is read again, not remembered."""
    names = [b"%03d" % i for i in range(50)]
    base.write([(1, key, b"old") for key in names])
    overlay = overlay_of(base, clean_bytes_max=100 * (ENTRY_BYTES + 6))
    store = overlay.store(1)
    assert [store.get(key) for key in names] == [b"old"] * 50
    for i in range(500):
        store.put(b"%03d" % (499 - i), b"new")  # those read before come last: they are not the part that is kept
    overlay.freeze()
    overlay.apply_chunk(b"pointer", keys_max=500)
    assert [store.get(key) for key in names] == [b"new"] * 50


def test_a_scan_merges_all_layers(base: MemoryStore) -> None:
    """Each layer hides the ones below it, deletes included, also while chunks are half applied."""
    base.write([(1, key, b"base") for key in (b"a", b"b", b"c", b"d", b"e")])
    overlay = overlay_of(base)
    store = overlay.store(1)
    for key in (b"b", b"c", b"bb"):
        store.put(key, b"frozen")
    store.delete(b"d")
    overlay.freeze()
    store.put(b"c", b"open")
    store.put(b"f", b"open")
    store.delete(b"bb")
    expected = [(b"a", b"base"), (b"b", b"frozen"), (b"c", b"open"), (b"e", b"base"), (b"f", b"open")]
    for _ in range(2):
        assert list(store.scan()) == expected
        assert list(store.scan(b"b", b"e")) == expected[1:3]
        overlay.apply_chunk(b"pointer", keys_max=2)


def test_chunks_are_as_large_as_asked() -> None:
    """A chunk bounds how long the write holds the GIL (A7): no empty one at the end, none larger."""
    sizes = []

    class Counting(MemoryStore):
        def write(self, writes: Iterable[Write], pointer: bytes | None = None) -> None:
            batch = list(writes)
            sizes.append(len(batch))
            super().write(batch, pointer)

    overlay = overlay_of(Counting({store: str(store) for store in IDS}))
    for i in range(10):
        overlay.store(IDS[i % 2]).put(b"%d" % i, b"")
    overlay.freeze()
    while not overlay.apply_chunk(b"pointer", keys_max=5):
        pass
    assert sizes == [5, 5]


def test_clean_reads_stay_within_their_bound() -> None:
    """Reads and applied layers are kept up to clean_bytes_max, whichever way they come."""
    asked = []

    class Counting(MemoryStore):
        def get(self, store: int, key: bytes) -> bytes | None:
            asked.append(key)
            return super().get(store, key)

    counting = Counting({store: str(store) for store in IDS})
    names = [b"%04d" % i for i in range(1000)]
    counting.write([(1, key, b"v" * 96) for key in names])
    overlay = overlay_of(counting, clean_bytes_max=100 * (ENTRY_BYTES + 100))
    store = overlay.store(1)

    def kept() -> int:
        asked.clear()
        for key in reversed(names):  # the last ones read are the ones kept
            assert store.get(key) is not None
        return len(names) - len(asked)

    for key in names:
        store.get(key)
    assert 50 <= kept() <= 100
    for count in (10, 1000):  # a layer that fits, one that does not
        for key in names[:count]:
            store.put(key, b"w" * 96)
        overlay.freeze()
        overlay.apply_chunk(b"pointer", keys_max=1000)
        assert kept() <= 100
        assert store.get(names[0]) == b"w" * 96


def test_misuse_is_told(base: MemoryStore) -> None:
    """Wrong ids, a damaged cursor, and calls out of order are errors with the values in the text."""
    overlay = overlay_of(base)
    with pytest.raises(ConfigError, match=r"store id 9 .*\[1, 4\]"):
        overlay.store(9)
    for wrong in ([1, 1], [-1], [1 << 15]):
        with pytest.raises(ConfigError, match="store ids"):
            Overlay(base, wrong, layer_bytes_max=1, clean_bytes_max=1)
    with pytest.raises(Halted, match="cursor"):
        overlay.sweep(b"x", 1, 1)
    with pytest.raises(AssertionError, match="nothing is frozen"):
        overlay.apply_chunk(b"pointer")
    overlay.begin_undo()
    with pytest.raises(AssertionError, match="undo"):
        overlay.freeze()
    overlay.end_undo()
    overlay.freeze()
    with pytest.raises(AssertionError, match="not been applied"):
        overlay.freeze()
