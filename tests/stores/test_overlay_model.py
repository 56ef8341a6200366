"""The overlay against a model of plain dicts.

Reads, scans, freezes, chunks, undo, rollback and rewrite come in any order.
"""

import struct
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grete.errors import TransientError
from grete.ports import Write
from grete.stores.memory import MemoryDisk, MemoryStore
from grete.stores.overlay.overlay import Overlay
from grete.stores.overlay.overlay_store import ENTRY_BYTES
from grete.stores.overlay.rewrite_slice import BEGUN, row_bytes

IDS = (1, 4)
Flat = dict[tuple[int, bytes], bytes]  # (store id, key) → value: the state of all stores
Row = tuple[bytes, bytes]

ids = st.sampled_from(IDS)
KEYS = [b"", b"\0", b"a", b"a\0", b"b", b"\xff"]  # few, so that the write batches hold the same ones
keys = st.sampled_from(KEYS)
values = st.binary(max_size=2)
changes = st.lists(st.tuples(ids, keys, st.none() | values), min_size=1, max_size=8)


class FullDisk(MemoryStore):
    """A store whose writes fail, with nothing written, as long as it is full."""

    full = False

    def write(self, writes: Iterable[Write], changelog_position: bytes | None = None) -> None:
        """Write unless the disk is full."""
        if self.full:
            list(writes)
            raise TransientError("the disk is full")
        super().write(writes, changelog_position)


class OverlayMachine(RuleBasedStateMachine):
    """Any order of calls that a task may make."""

    @initialize(read_cache_bytes_max=st.sampled_from([0, 300, 1000, 1 << 20]))
    def start(self, read_cache_bytes_max: int) -> None:
        """Begin with an empty state store; a small read cache ages often."""
        self.read_cache_bytes_max = read_cache_bytes_max
        self.disk = MemoryDisk()
        self.checkpoint_id = 0
        self.committed: Flat = {}
        self.open_overlay()

    def open_overlay(self) -> None:
        """Start as after a crash: what is on disk, no write batches."""
        self.base = FullDisk({store: str(store) for store in IDS}, self.disk)
        self.overlay = Overlay(
            self.base, IDS, uncommitted_state_bytes_max=1 << 20, read_cache_bytes_max=self.read_cache_bytes_max
        )
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
        """Read one key, which may then be kept in the read cache."""
        assert self.overlay.store(store).get(key) == self.current.get((store, key))

    @rule(store=ids, wanted=st.lists(keys, max_size=8))
    def get_many(self, store: int, wanted: list[bytes]) -> None:
        """Read some keys in one call, one of them maybe twice."""
        assert self.overlay.store(store).get_many(wanted) == [self.current.get((store, key)) for key in wanted]

    @rule()
    def get_everything(self) -> None:
        """Read all keys of all stores."""
        for store in IDS:
            for key in KEYS:
                self.get(store, key)

    @rule(store=ids, start=keys, end=st.none() | keys, reverse=st.booleans())
    def scan(self, store: int, start: bytes, end: bytes | None, reverse: bool = False) -> None:
        """Begin a scan; it is read on later, when other things have happened."""
        expected = [
            (key, value)
            for (number, key), value in sorted(self.current.items(), reverse=reverse)
            if number == store and key >= start and (end is None or key < end)
        ]
        self.scans.append((self.overlay.store(store).scan(start, end, reverse=reverse), expected))

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
        self.checkpoint_id += 1
        self.standing |= self.frozen_dirty
        assert list(self.overlay.frozen_items()) == [
            (*place, self.frozen.get(place)) for place in sorted(self.frozen_dirty)
        ]
        assert self.overlay.frozen.unsent_count == len(self.frozen_dirty)

    @precondition(lambda self: self.frozen is not None)
    @rule(keys_max=st.integers(1, 4), full=st.booleans())
    def apply_chunk(self, keys_max: int, full: bool) -> None:
        """Write a chunk, perhaps after a first attempt that failed.

        The changelog position comes only with the last one.
        """
        assert self.frozen is not None
        old = self.disk.changelog_position
        if full:
            self.base.full = True
            with pytest.raises(TransientError):
                self.overlay.apply_chunk(b"%d" % self.checkpoint_id, keys_max)
            self.base.full = False
        done = self.overlay.apply_chunk(b"%d" % self.checkpoint_id, keys_max)
        self.applied += 1
        assert self.disk.changelog_position == (b"%d" % self.checkpoint_id if done else old)
        assert self.overlay.frozen.whole is not done
        if done:
            self.committed, self.frozen, self.applied = self.frozen, None, 0
            stored = {(store, key): value for store in IDS for key, value in self.base.scan(store, b"", None)}
            assert stored == self.committed

    @rule()
    def drop_open(self) -> None:
        """Roll back to the frozen checkpoint, or to the last one (R4)."""
        self.overlay.drop_open()
        self.current = dict(self.committed if self.frozen is None else self.frozen)
        self.dirty = set()

    @precondition(lambda self: not self.applied)
    @rule(crash=st.booleans(), loaded=st.just([]) | changes)
    def drop_all(self, crash: bool, loaded: list[tuple[int, bytes, bytes | None]]) -> None:
        """Start from what is in the state store, which may be loaded again: no read remembers what was there before."""
        if not crash:
            self.overlay.drop_all()
            assert not self.overlay.frozen.whole
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

    @precondition(lambda self: self.frozen is not None and not self.applied)
    @rule(bytes_max=st.integers(-1, 70), keys_max=st.integers(1, 6))
    def rewrite(self, bytes_max: int, keys_max: int) -> None:
        """Check a slice: the live, clean part of the frozen checkpoint between two cursors (K2)."""
        assert self.frozen is not None
        start = self.cursor
        if not start:
            self.standing = set(self.frozen_dirty)
        rewritten, self.cursor, done = self.overlay.rewrite(start, bytes_max, keys_max)
        assert done == (self.cursor == b"")
        assert len(rewritten) <= keys_max
        assert sum(row_bytes(key, value) for _, key, value in rewritten[:-1]) < max(bytes_max, 1)

        def within(place: tuple[int, bytes]) -> bool:
            encoded = struct.pack(">h", place[0]) + place[1]
            return (start in (b"", BEGUN) or encoded > start) and (
                done or (self.cursor != BEGUN and encoded <= self.cursor)
            )

        clean = [place for place in sorted(self.frozen) if within(place) and place not in self.frozen_dirty]
        places = [(store, key) for store, key, _ in rewritten]
        assert places == [place for place in clean if place in places]
        assert [value for *_, value in rewritten] == [self.frozen[place] for place in places]
        assert set(clean) - set(places) <= self.standing  # they came behind the last key since the round began
        self.standing |= set(clean)
        if done:
            assert set(self.frozen) <= self.standing  # a round re-appends every live key

    @precondition(lambda self: not self.applied)
    @rule(writes=changes, bytes_max=st.integers(-1, 70), keys_more=st.integers(1, 3), full=st.booleans())
    def commit(self, writes: list[tuple[int, bytes, bytes | None]], bytes_max: int, keys_more: int, full: bool) -> None:
        """A whole commit at once, read between its chunks, so that many checkpoints follow each other in one run."""
        if self.frozen is None:
            self.change(writes)
            self.freeze()
        self.rewrite(bytes_max, 3)
        for _ in range(len(self.frozen_dirty) + 1):  # a lost chunk must fail, not hang
            if self.frozen is not None:
                self.apply_chunk(keys_more, full)
                self.get_everything()
        assert self.frozen is None

    @invariant()
    def open_bytes_are_never_too_low(self) -> None:
        """The dirty bytes are never underestimated: the bound cannot be passed unseen (A9)."""
        least = sum(len(key) + len(self.current.get((store, key), b"")) + ENTRY_BYTES for store, key in self.dirty)
        assert self.overlay.open_bytes >= least


OverlayMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestOverlay = OverlayMachine.TestCase
