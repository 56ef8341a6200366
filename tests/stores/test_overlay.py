"""The overlay, property by property; test_overlay_model.py has it in any order against plain dicts."""

from collections.abc import Iterable

import pytest

from grete.errors import ConfigError, Halted
from grete.ports import Write
from grete.stores.memory import MemoryStore
from grete.stores.overlay.overlay import Overlay
from grete.stores.overlay.overlay_store import ENTRY_BYTES

IDS = (1, 4)


@pytest.fixture
def base() -> MemoryStore:
    """Return an empty state store."""
    return MemoryStore({store: str(store) for store in IDS})


def overlay_of(
    base: MemoryStore, uncommitted_state_bytes_max: int = 1 << 20, read_cache_bytes_max: int = 1 << 20
) -> Overlay:
    """Return an overlay of both stores."""
    return Overlay(
        base, IDS, uncommitted_state_bytes_max=uncommitted_state_bytes_max, read_cache_bytes_max=read_cache_bytes_max
    )


def test_a_write_batch_beyond_its_bound_stops_the_task_naming_the_setting(base: MemoryStore) -> None:
    """No write batch grows without end; over all stores together, deletes included (A9)."""
    overlay = overlay_of(base, uncommitted_state_bytes_max=100_000)
    written = 0

    def write() -> None:
        nonlocal written
        for written in range(10_000):
            store = overlay.store(IDS[written % 2])
            if written % 3:
                store.put(b"%06d" % written, b"value")
            else:
                store.delete(b"%06d" % written)

    with pytest.raises(Halted, match=r"uncommitted_state_bytes_max = 100000") as caught:
        write()
    assert 100_000 / (ENTRY_BYTES + 11) < written < 110_000 / (ENTRY_BYTES + 6)
    assert f"{written + 1} keys" in str(caught.value)


def test_a_key_that_is_put_again_and_again_does_not_fill_the_write_batch(base: MemoryStore) -> None:
    """A counter that is put a million times is one entry, not a reason to stop (A9)."""
    overlay = overlay_of(base, uncommitted_state_bytes_max=10_000)
    for i in range(5_000):
        overlay.store(1).put(b"counter", b"%d" % i)
    assert overlay.open_bytes <= 11_000


def test_the_bound_counts_from_zero_after_a_freeze_and_a_drop(base: MemoryStore) -> None:
    """Only the open write batch counts (A9)."""
    overlay = overlay_of(base, uncommitted_state_bytes_max=10_000)
    for round_number in range(6):
        for i in range(50):
            overlay.store(1).put(b"%d-%d" % (round_number, i), b"value")
        if round_number % 2:
            overlay.drop_open()
        else:
            overlay.freeze()
            while not overlay.apply_chunk(b"position", keys_max=7):
                pass
        assert overlay.open_bytes == 0


def test_a_commit_without_dirty_keys_writes_the_changelog_position(base: MemoryStore) -> None:
    """A checkpoint in which nothing changed moves the changelog position all the same."""
    overlay = overlay_of(base)
    overlay.freeze()
    assert (overlay.frozen.unsent_count, list(overlay.frozen_items())) == (0, [])
    assert overlay.apply_chunk(b"position") is True
    assert (base.changelog_position(), overlay.frozen.whole) == (b"position", False)


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
    """A key that the record only deleted is there again, whichever write batch it was in."""
    base.write([(1, b"base", b"1")])
    overlay = overlay_of(base)
    store = overlay.store(1)
    store.put(b"open", b"2")
    overlay.begin_undo()
    store.delete(b"base")
    store.delete(b"open")
    overlay.undo()
    assert (store.get(b"base"), store.get(b"open")) == (b"1", b"2")


def test_a_write_batch_larger_than_the_cache_leaves_no_outdated_reads(base: MemoryStore) -> None:
    """A value that the cache has no room for is read again, not remembered."""
    names = [b"%03d" % i for i in range(50)]
    base.write([(1, key, b"old") for key in names])
    overlay = overlay_of(base, read_cache_bytes_max=100 * (ENTRY_BYTES + 6))
    store = overlay.store(1)
    assert [store.get(key) for key in names] == [b"old"] * 50
    for i in range(500):
        store.put(b"%03d" % (499 - i), b"new")  # those read before come last: they are not the part that is kept
    overlay.freeze()
    overlay.apply_chunk(b"position", keys_max=500)
    assert [store.get(key) for key in names] == [b"new"] * 50


def test_a_scan_merges_all_write_batches(base: MemoryStore) -> None:
    """Each write batch hides those below it, deletes included, also while chunks are half applied."""
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
        overlay.apply_chunk(b"position", keys_max=2)


def test_chunks_are_as_large_as_asked() -> None:
    """A chunk bounds how long the write holds the GIL (A7): no empty one at the end, none larger."""
    sizes = []

    class Counting(MemoryStore):
        def write(self, writes: Iterable[Write], changelog_position: bytes | None = None) -> None:
            batch = list(writes)
            sizes.append(len(batch))
            super().write(batch, changelog_position)

    overlay = overlay_of(Counting({store: str(store) for store in IDS}))
    for i in range(10):
        overlay.store(IDS[i % 2]).put(b"%d" % i, b"")
    overlay.freeze()
    while not overlay.apply_chunk(b"position", keys_max=5):
        pass
    assert sizes == [5, 5]


def test_cached_reads_stay_within_their_bound() -> None:
    """Reads and applied write batches are kept up to read_cache_bytes_max, whichever way they come."""
    asked = []

    class Counting(MemoryStore):
        def get(self, store: int, key: bytes) -> bytes | None:
            asked.append(key)
            return super().get(store, key)

    counting = Counting({store: str(store) for store in IDS})
    names = [b"%04d" % i for i in range(1000)]
    counting.write([(1, key, b"v" * 96) for key in names])
    overlay = overlay_of(counting, read_cache_bytes_max=100 * (ENTRY_BYTES + 100))
    store = overlay.store(1)

    def kept() -> int:
        asked.clear()
        for key in reversed(names):  # the last ones read are the ones kept
            assert store.get(key) is not None
        return len(names) - len(asked)

    for key in names:
        store.get(key)
    assert 50 <= kept() <= 100
    for count in (10, 1000):  # a write batch that fits, one that does not
        for key in names[:count]:
            store.put(key, b"w" * 96)
        overlay.freeze()
        overlay.apply_chunk(b"position", keys_max=1000)
        assert kept() <= 100
        assert store.get(names[0]) == b"w" * 96


def test_misuse_is_told(base: MemoryStore) -> None:
    """Wrong ids, a damaged cursor, and calls out of order are errors with the values in the text."""
    overlay = overlay_of(base)
    with pytest.raises(ConfigError, match=r"store id 9 .*\[1, 4\]"):
        overlay.store(9)
    for wrong in ([1, 1], [-1], [1 << 15]):
        with pytest.raises(ConfigError, match="store ids"):
            Overlay(base, wrong, uncommitted_state_bytes_max=1, read_cache_bytes_max=1)
    with pytest.raises(Halted, match="cursor"):
        overlay.rewrite(b"x", 1)
    with pytest.raises(AssertionError, match="nothing is frozen"):
        overlay.apply_chunk(b"position")
    overlay.begin_undo()
    with pytest.raises(AssertionError, match="undo"):
        overlay.freeze()
    overlay.end_undo()
    overlay.freeze()
    with pytest.raises(AssertionError, match="not been applied"):
        overlay.freeze()
