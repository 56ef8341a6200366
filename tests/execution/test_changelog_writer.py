"""State on its way into the changelog and out of it: dirty keys and rewrite (A7, K2), segments into the store (R1)."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.core.actions import WriteData
from grete.core.events import DataWritten
from grete.errors import Halted
from grete.execution.changelog import changelog_writer
from grete.execution.changelog.changelog_writer import DataSlices, RewriteBudget, apply_segment
from grete.execution.limits import REWRITE_IDLE_BYTES
from grete.protocol.changelog import (
    REWRITTEN,
    ChangelogHeader,
    ChangelogType,
    decode_changelog_header,
    decode_data,
    encode_data,
)
from grete.stores.memory import MemoryStore
from grete.stores.overlay.overlay import Overlay
from grete.stores.overlay.rewrite_slice import BEGUN

STORES = {1: "one", 2: "two"}
Rows = dict[tuple[int, bytes], bytes]
Writes = list[tuple[int, bytes, bytes | None]]
WRITES = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.binary(min_size=1, max_size=2), st.none() | st.binary(max_size=3)),
    max_size=20,
)


def task_state() -> tuple[MemoryStore, Overlay]:
    """Return an empty store and its overlay."""
    store = MemoryStore(STORES)
    return store, Overlay(store, list(STORES), uncommitted_state_bytes_max=1 << 24, read_cache_bytes_max=1 << 20)


def write(overlay: Overlay, writes: list[tuple[int, bytes, bytes | None]]) -> None:
    """Write into the open write batch and freeze it."""
    put(overlay, writes)
    overlay.freeze()


def put(overlay: Overlay, writes: list[tuple[int, bytes, bytes | None]]) -> None:
    """Write into the open write batch."""
    for store, key, value in writes:
        if value is None:
            overlay.store(store).delete(key)
        else:
            overlay.store(store).put(key, value)


def written(messages: list[bytes]) -> list[tuple[int, bytes, bytes | None]]:
    """Return all writes of some data messages, in order."""
    return [row for data in map(decode_data, messages) for row in zip(data.stores, data.keys, data.values, strict=True)]


def rows(store: MemoryStore) -> Rows:
    """Return all that a store holds."""
    return {(number, key): value for number in STORES for key, value in store.scan(number, b"", None)}


def finish(overlay: Overlay) -> None:
    """Bring the frozen write batch into the store."""
    while not overlay.apply_chunk(b"pointer"):
        pass


class Encoded:
    """All data messages of what is frozen, slice by slice, as the core asks for them."""

    def __init__(self, overlay: Overlay, generation: int, first_seq: int, cursor: bytes, budget: RewriteBudget) -> None:
        slices = DataSlices(overlay, budget)
        self.messages: list[bytes] = []
        answer = DataWritten(0, 0, cursor, round_done=False, more=True)
        while answer.more:
            seq = first_seq + len(self.messages)
            message, answer = slices.next(WriteData(generation, seq, answer.cursor))
            assert answer.count == (message is not None)
            self.messages += [] if message is None else [message]
        self.digest, self.cursor, self.round_done = answer.digest, answer.cursor, answer.round_done


def test_dirty_keys_are_written_once_each() -> None:
    """Changelog data of a checkpoint: its dirty keys, one value per key, the last (A7)."""
    _, overlay = task_state()
    write(overlay, [(1, b"k", b"1"), (2, b"k", b"other store"), (1, b"k", b"2"), (1, b"gone", None)])
    encoded = Encoded(overlay, 4, 9, b"", RewriteBudget())
    assert sorted(written(encoded.messages)) == [(1, b"gone", None), (1, b"k", b"2"), (2, b"k", b"other store")]
    assert decode_changelog_header(encoded.messages[0]) == (ChangelogType.DATA, 4, 9, 0)
    assert encoded.digest == zlib.crc32(b"".join(encoded.messages))


@pytest.mark.parametrize("cursor", [b"", b"\0\x01k"])
def test_a_checkpoint_without_changes_rewrites_nothing(cursor: bytes) -> None:
    """An idle task writes commits only, however large its state is, and no round ends by that (K2)."""
    _, overlay = task_state()
    write(overlay, [(1, b"%d" % number, bytes(100)) for number in range(5)])
    finish(overlay)
    write(overlay, [])
    encoded = Encoded(overlay, 1, 1, cursor, RewriteBudget())
    assert (encoded.messages, encoded.digest, encoded.round_done) == ([], 0, False)
    assert encoded.cursor == (cursor or BEGUN)


def test_commit_messages_pay_for_a_slice_once_they_add_up() -> None:
    """So the changelog of a task that only commits is trimmed, too (K2)."""
    _, overlay = task_state()
    write(overlay, [(1, b"%d" % number, bytes(100)) for number in range(5)])
    finish(overlay)
    budget, rewritten = RewriteBudget(), []
    for _ in range(3):
        budget.appended(REWRITE_IDLE_BYTES // 2)
        write(overlay, [])
        encoded = Encoded(overlay, 1, 1, b"", budget)
        rewritten.append((len(written(encoded.messages)), encoded.round_done))
        finish(overlay)
    assert rewritten == [(0, False), (5, True), (5, True)]


@pytest.fixture
def as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite exactly as much as is appended."""
    monkeypatch.setattr(changelog_writer, "REWRITE_SHARE", 1)


@pytest.mark.usefixtures("as_much")
def test_a_large_row_is_an_advance() -> None:
    """A row that is larger than what pays for it is rewritten, and nothing more until it is paid for (K2)."""
    _, overlay = task_state()
    write(overlay, [(1, b"large", bytes(300)), (1, b"next", b"v")])
    finish(overlay)
    budget, cursor, rewritten = RewriteBudget(), b"", []
    for _ in range(6):
        write(overlay, [(2, b"k", bytes(89))])
        encoded = Encoded(overlay, 1, 1, cursor, budget)
        rewritten.append([key for store, key, _ in written(encoded.messages) if store == 1])
        cursor = encoded.cursor
        finish(overlay)
    assert rewritten == [[b"large"], [], [], [b"next"], [b"large"], []]


def test_data_and_rewrite_are_of_the_frozen_checkpoint() -> None:
    """Writes of user code after the freeze belong to the next checkpoint, rewritten keys included (K2, A8)."""
    _, overlay = task_state()
    write(overlay, [(1, b"clean", b"old"), (1, b"dirty", b"old")])
    finish(overlay)
    write(overlay, [(1, b"dirty", b"frozen")])
    for key in (b"clean", b"dirty", b"new"):
        overlay.store(1).put(key, b"open")
    messages = Encoded(overlay, 1, 1, b"", RewriteBudget()).messages
    assert written(messages) == [(1, b"dirty", b"frozen"), (1, b"clean", b"old")]


def test_large_checkpoints_are_cut_into_numbered_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages stay below a broker's limit, and their ChangelogSeqs are contiguous (1.2)."""
    monkeypatch.setattr(changelog_writer, "MESSAGE_BYTES_MAX", 100)
    _, overlay = task_state()
    write(overlay, [(1, b"%04d" % number, bytes(21)) for number in range(10)])
    messages = Encoded(overlay, 1, 5, b"", RewriteBudget()).messages
    assert [decode_changelog_header(message).seq for message in messages] == [5, 6, 7, 8]
    assert [len(decode_data(message).keys) for message in messages] == [4, 4, 2, 0]  # the last: a round has ended


@pytest.mark.usefixtures("as_much")
def test_each_commit_rewrites_the_next_slice() -> None:
    """It is as long as what has changed, and goes in key order; the round ends when all keys were passed (K2)."""
    _, overlay = task_state()
    write(overlay, [(1, b"%d" % number, b"v") for number in range(5)])
    finish(overlay)
    rewritten, ends, cursor, budget = [], [], b"", RewriteBudget()
    for _ in range(3):
        write(overlay, [(2, b"a", b"v"), (2, b"b", b"v")])
        encoded = Encoded(overlay, 1, 1, cursor, budget)
        rewritten.append([key for store, key, _ in written(encoded.messages) if store == 1])
        ends.append(encoded.round_done)
        cursor = encoded.cursor
        finish(overlay)
    assert (rewritten, ends, cursor) == ([[b"0", b"1"], [b"2", b"3"], [b"4"]], [False, False, True], b"")


@settings(max_examples=100)
@given(st.lists(st.tuples(WRITES, WRITES), min_size=1, max_size=8))
def test_what_is_rewritten_is_told_from_what_has_changed(parts_of_checkpoints: list[tuple[Writes, Writes]]) -> None:
    """A message is of changes, or of rewritten keys and says so; no key is passed without one that says so (0068)."""
    store, overlay = task_state()
    cursor, budget = b"", RewriteBudget()
    for early, late in parts_of_checkpoints:
        slices, before, messages, moved = DataSlices(overlay, budget), rows(store), [], False
        for writes in (early, late):
            put(overlay, writes)
            overlay.freeze_part() if writes is early else overlay.freeze()
            more = True
            while more:
                message, answer = slices.next(WriteData(1, 1, cursor))
                moved |= answer.cursor != (cursor or BEGUN) or answer.round_done
                messages += [] if message is None else [decode_data(message)]
                cursor, more = answer.cursor, answer.more
        assert any(data.reset_stores == REWRITTEN for data in messages) == (moved and bool(messages))
        changed = [(s, k) for d in messages if d.reset_stores is None for s, k in zip(d.stores, d.keys, strict=True)]
        assert set(changed) == {(number, key) for number, key, _ in early + late}
        for data in messages:
            if data.reset_stores is not None:
                found = zip(data.stores, data.keys, data.values, strict=True)
                assert all(before[number, key] == value for number, key, value in found)
        finish(overlay)


def test_a_round_ends_although_keys_always_come_behind_it() -> None:
    """A queue in the order of time: what is put behind the last key since the round began is no part of it (K2)."""
    _, overlay = task_state()
    budget, cursor, ends = RewriteBudget(), b"", 0
    write(overlay, [(1, b"%06d" % number, bytes(50)) for number in range(100)])
    finish(overlay)
    for number in range(100, 1_000):
        write(overlay, [(1, b"%06d" % number, bytes(50)), (1, b"%06d" % (number - 100), None)])
        encoded = Encoded(overlay, 1, 1, cursor, budget)
        cursor, ends = encoded.cursor, ends + encoded.round_done
        finish(overlay)
    assert ends >= 8  # each once about 100 keys were put


@settings(max_examples=40)
@given(st.lists(WRITES, min_size=1, max_size=8))
def test_the_changelog_from_a_round_start_is_the_whole_state(
    writes_of_checkpoints: list[list[tuple[int, bytes, bytes | None]]],
) -> None:
    """Applied to an empty store, what a round has written gives exactly the state at its end (K2, R1)."""
    store, overlay = task_state()
    messages: list[bytes] = []
    since: list[bytes] = []
    cursor, budget = b"", RewriteBudget()
    for writes in writes_of_checkpoints:
        write(overlay, writes)
        encoded = Encoded(overlay, 1, 1, cursor, budget)
        since += encoded.messages
        messages += encoded.messages
        cursor = encoded.cursor
        finish(overlay)
        if encoded.round_done:
            copy = MemoryStore(STORES)
            for message in since:
                apply_segment("changelog", copy, message)
            assert rows(copy) == rows(store)
            since = []
    copy = MemoryStore(STORES)
    for message in messages:
        apply_segment("changelog", copy, message)
    assert rows(copy) == rows(store)


def test_the_changelog_without_history_is_bounded_by_the_state() -> None:
    """Two rounds stay within four times the state and the overhead of its rows, and no more is kept (K2)."""
    budget = RewriteBudget()
    _, overlay = task_state()
    write(overlay, [(1, b"%03d" % number, bytes(100)) for number in range(300)])
    finish(overlay)
    sizes, rounds, cursor, kept = [], [0, 0], b"", []
    for checkpoint_id in range(120):
        write(overlay, [(1, b"%03d" % ((checkpoint_id * 37 + number * 91) % 300), bytes(100)) for number in range(15)])
        encoded = Encoded(overlay, 1, 1, cursor, budget)
        finish(overlay)
        sizes.append(sum(map(len, encoded.messages)))
        cursor = encoded.cursor
        kept.append(sum(sizes[rounds[-2] :]))
        if encoded.round_done:
            rounds.append(len(sizes))
    assert len(rounds) > 4
    assert max(kept) <= 4 * 1.15 * 300 * 103


def test_a_segment_is_applied_store_by_store() -> None:
    """Runs of one store go in as columns; the number of records is what comes back (R1)."""
    store, _ = task_state()
    header = ChangelogHeader(ChangelogType.DATA, 1, 1, 0)
    store.write([(2, b"b", b"old")])
    message = encode_data(header, [1, 1, 2, 1], [b"a", b"b", b"b", b"c"], [b"1", b"2", None, b"3"])
    assert apply_segment("changelog", store, message) == 4
    assert rows(store) == {(1, b"a"): b"1", (1, b"b"): b"2", (1, b"c"): b"3"}


def test_a_damaged_data_message_halts() -> None:
    """A crc that does not agree names the changelog and what to do (1.2)."""
    store, _ = task_state()
    message = encode_data(ChangelogHeader(ChangelogType.DATA, 1, 1, 0), [1], [b"a"], [b"1"])
    with pytest.raises(
        Halted, match=r"j\.b\.changelog\[0\]: .*crc32.*restore the topic, or start the job under another name"
    ):
        apply_segment("j.b.changelog[0]", store, message[:-1] + b"2")
    assert rows(store) == {}


@settings(max_examples=30)
@given(before=WRITES, after=WRITES, resets=st.sets(st.sampled_from([1, 2])))
def test_a_reset_empties_the_stores_that_it_names(before: Writes, after: Writes, resets: set[int]) -> None:
    """A run rewrites some stores: of what they held nothing is left, and the others keep all (R1, 1.8)."""
    store, expected = MemoryStore(STORES), dict[tuple[int, bytes], bytes]()
    for seq, (writes, reset) in enumerate(((before, None), (after, sorted(resets)))):
        numbers, keys, values = zip(*writes, strict=True) if writes else ((), (), ())
        header = ChangelogHeader(ChangelogType.DATA, 1, seq + 1, 0)
        apply_segment("changelog", store, encode_data(header, numbers, keys, values, reset))
        expected = {cell: value for cell, value in expected.items() if cell[0] not in (reset or ())}
        for number, key, value in writes:
            expected.pop((number, key), None)
            if value is not None:
                expected[number, key] = value
    assert rows(store) == expected


def test_a_reset_of_more_than_is_deleted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emptying goes in steps, and none of them passes a key over."""
    monkeypatch.setattr(changelog_writer, "_CLEAR_KEYS", 3)
    store = MemoryStore(STORES)
    store.load(1, [b"%02d" % number for number in range(10)], [b"x"] * 10)
    apply_segment("changelog", store, encode_data(ChangelogHeader(ChangelogType.DATA, 1, 1, 0), [], [], [], [1]))
    assert rows(store) == {}
