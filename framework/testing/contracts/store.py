"""The contract of every state store (grete.ports.StateStore)."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from grete.errors import ConfigError
from grete.ports import StateStore
from grete.testing.contracts.clauses import Contract

NAMES = {0: "counts", 3: "words"}
Opener = Callable[..., StateStore]


def rows(store: StateStore, number: int = 0, start: bytes = b"", end: bytes | None = None) -> list[tuple[bytes, bytes]]:
    """Return a whole scan."""
    return list(store.scan(number, start, end))


class StoreContract(Contract):
    """The contract of a state store. Subclass it in a test module, and override the fixture ``open_store``.

        class TestMyStore(StoreContract):
            @pytest.fixture
            def open_store(self, tmp_path):
                return lambda names: MyStore(tmp_path / "task", names)

    ``names``: store id → name. Each call opens the same store, as the next process would; the one before is closed.
    """

    port = "store"

    @pytest.fixture
    def open_store(self) -> Callable[[Mapping[int, str]], StateStore]:
        """Return the function that opens a store. Your class overrides this fixture."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `open_store` that returns a function")

    @pytest.fixture
    def reopen(self, open_store: Callable[[Mapping[int, str]], StateStore]) -> Iterator[Opener]:
        """Return a function that closes what it opened last, and opens the same store again."""
        opened = list[StateStore]()

        def opener(names: Mapping[int, str] = NAMES) -> StateStore:
            while opened:
                opened.pop().close()
            opened.append(open_store(names))
            return opened[-1]

        yield opener
        while opened:
            opened.pop().close()

    @pytest.fixture
    def store(self, reopen: Opener) -> StateStore:
        """Return an empty store."""
        return reopen()

    def test_an_empty_store_has_no_changelog_position_and_no_keys(self, store: StateStore) -> None:
        """Nothing is there before the first write: a start can tell a new store from one to go on with (R1)."""
        assert (store.changelog_position(), store.get(0, b"k"), rows(store)) == (None, None, [])

    def test_the_last_write_of_a_key_wins_also_within_one_batch(self, store: StateStore) -> None:
        """Writes apply in the order given."""
        store.write([(0, b"k", b"1"), (0, b"k", None), (0, b"k", b"2"), (0, b"gone", b"1"), (0, b"gone", None)])
        assert rows(store) == [(b"k", b"2")]

    def test_stores_do_not_see_each_other(self, store: StateStore) -> None:
        """The same key in two stores is two keys."""
        store.write([(0, b"k", b"counts"), (3, b"k", b"words"), (3, b"w", b"")])
        assert (rows(store, 0), rows(store, 3)) == ([(b"k", b"counts")], [(b"k", b"words"), (b"w", b"")])

    def test_empty_keys_and_values_are_keys_and_values(self, store: StateStore) -> None:
        """An empty value is not a delete, and an empty key is the first key."""
        store.write([(0, b"", b""), (0, b"\0", b"x")])
        store.load(3, [b"", b"\xff"], [b"", b"y"])
        assert (store.get(0, b""), rows(store, 0)) == (b"", [(b"", b""), (b"\0", b"x")])
        assert rows(store, 3) == [(b"", b""), (b"\xff", b"y")]

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (b"", None, "aabc"),
            (b"a", b"b", "aa"),
            (b"a", b"a", ""),
            (b"b", b"a", ""),
            (b"ab", None, "bc"),
            (b"c\0", None, ""),
            (b"", b"", ""),
            (b"", b"\xff", "aabc"),
        ],
    )
    def test_a_scan_takes_the_start_and_leaves_the_end(
        self, store: StateStore, start: bytes, end: bytes | None, expected: str
    ) -> None:
        """Start <= key < end, bytewise, in key order, and the same from the last key on."""
        store.write([(0, key, key[:1]) for key in (b"c", b"aa", b"b", b"a")])
        assert b"".join(value for _, value in store.scan(0, start, end)).decode() == expected
        assert list(store.scan(0, start, end, reverse=True)) == [*store.scan(0, start, end)][::-1]

    def test_a_scan_keeps_to_its_end_whatever_else_is_allocated(self, store: StateStore) -> None:
        """A prefix of any bytes gives all of its keys and no others, while memory is used by others."""
        for size in (1, 7, 8, 20, 40):
            prefixes = [bytes(size - 1) + bytes([number]) for number in range(1, 200, 20)]
            store.write([(0, prefix + b"%d" % number, b"") for prefix in prefixes for number in range(5)])
            scans = [store.scan(0, prefix, prefix[:-1] + bytes([prefix[-1] + 1])) for prefix in prefixes]
            rubbish = [bytes(size) for _ in range(50)]
            for prefix, scan in zip(prefixes, scans, strict=True):
                found = [key for key, _ in scan if len(key) == size + 1]
                assert found == [prefix + b"%d" % number for number in range(5)]
            assert len(rubbish) == 50

    @pytest.mark.parametrize("reverse", [False, True])
    def test_a_scan_sees_the_store_as_of_its_call(self, store: StateStore, reverse: bool) -> None:
        """A scan sees the store as of its call: later writes do not appear, before or after the first row."""
        store.write([(0, b"%03d" % i, b"old") for i in range(300)])
        scan = store.scan(0, b"", None, reverse=reverse)
        store.write([(0, b"000", b"new"), (0, b"0005", b"new")])
        first = next(scan)
        store.write([(0, b"001", None), (0, b"299", b"new"), (0, b"9", b"new")])
        expected = [(b"%03d" % i, b"old") for i in range(300)]
        assert [first, *scan] == (expected[::-1] if reverse else expected)

    def test_many_keys_are_read_as_each_of_them(self, store: StateStore) -> None:
        """The values come in the order of the keys, whether they are there or not, also for a key asked for twice."""
        store.write([(0, b"k", b"1"), (0, b"", b""), (0, b"gone", b"1"), (0, b"gone", None), (3, b"w", b"1")])
        store.load(0, [b"l"], [b"2"])
        assert store.get_many(0, [b"l", b"k", b"w", b"gone", b"k", b""]) == [b"2", b"1", None, None, b"1", b""]
        assert store.get_many(0, []) == []

    def test_the_last_key_is_that_of_the_order(self, store: StateStore) -> None:
        """Deleted keys are gone, loaded ones are there, and an empty store has none."""
        assert store.last_key(0) is None
        store.write([(0, b"a", b"1"), (0, b"c", b"1"), (0, b"b\xff", b"1"), (3, b"z", b"1")])
        assert store.last_key(0) == b"c"
        store.write([(0, b"c", None)])
        assert store.last_key(0) == b"b\xff"
        store.load(0, [b"d"], [b"1"])
        assert store.last_key(0) == b"d"

    def test_a_load_is_seen_at_once_and_overwrites_what_was_written_before(self, store: StateStore) -> None:
        """Loads, writes, gets and scans act in the order of the calls."""
        store.write([(0, b"a", b"1"), (0, b"b", b"1"), (0, b"c", b"1")])
        store.load(0, [b"a", b"b", b"d", b"a"], [b"2", None, b"2", b"3"])
        assert store.get(0, b"a") == b"3"
        assert rows(store) == [(b"a", b"3"), (b"c", b"1"), (b"d", b"2")]
        store.load(0, [b"c", b"e"], [None, None])
        store.write([(0, b"d", b"4")])
        store.load(0, [], [])
        assert rows(store) == [(b"a", b"3"), (b"d", b"4")]

    def test_columns_of_different_lengths_are_refused(self, store: StateStore) -> None:
        """A damaged data message must not shift values to other keys."""
        with pytest.raises(ValueError, match=r"."):
            store.load(0, [b"a", b"b"], [b"1"])
        assert rows(store) == []

    def test_data_and_changelog_position_outlive_a_restart(self, reopen: Opener) -> None:
        """Entries written or loaded before the changelog position survive a restart (R1)."""
        store = reopen()
        store.load(3, [b"w"], [b"1"])
        store.write([(0, b"k", b"2")], b"first")
        store.write([(0, b"k", b"3")], b"second")
        store.write([(0, b"l", b"4")])
        store = reopen()
        assert (store.changelog_position(), rows(store, 0), rows(store, 3)) == (
            b"second",
            [(b"k", b"3"), (b"l", b"4")],
            [(b"w", b"1")],
        )

    def test_a_flush_without_a_changelog_position_keeps_what_was_loaded(self, reopen: Opener) -> None:
        """After flush a restart finds the data."""
        store = reopen()
        store.load(0, [b"k"], [b"1"])
        store.flush()
        assert rows(reopen()) == [(b"k", b"1")]

    def test_wipe_leaves_nothing_now_or_after_a_restart(self, reopen: Opener) -> None:
        """After a wipe the store is as new, and usable."""
        store = reopen()
        store.load(3, [b"w"], [b"1"])
        store.write([(0, b"k", b"1")], b"position")
        store.load(0, [b"l"], [b"1"])
        store.wipe()
        assert (store.changelog_position(), rows(store, 0), rows(store, 3)) == (None, [], [])
        store.write([(0, b"n", b"1")])
        store = reopen()
        assert (store.changelog_position(), rows(store, 0), rows(store, 3)) == (None, [(b"n", b"1")], [])

    def test_a_store_may_be_added_at_a_later_start(self, reopen: Opener) -> None:
        """New stores are empty; the old ones keep their data."""
        reopen().write([(0, b"k", b"1")], b"position")
        store = reopen(NAMES | {7: "new"})
        store.write([(7, b"n", b"2")])
        store = reopen(NAMES | {7: "new", 9: "newer"})
        assert (store.changelog_position(), rows(store, 0), rows(store, 7), rows(store, 9)) == (
            b"position",
            [(b"k", b"1")],
            [(b"n", b"2")],
            [],
        )

    def test_a_store_left_out_at_one_start_is_there_at_the_next(self, reopen: Opener) -> None:
        """Data that no caller asks for stays."""
        reopen().write([(0, b"k", b"1"), (3, b"w", b"1")])
        reopen({0: "counts"}).write([(0, b"k", b"2")])
        store = reopen()
        assert (rows(store, 0), rows(store, 3)) == ([(b"k", b"2")], [(b"w", b"1")])

    def test_a_store_id_cannot_change_its_name(self, reopen: Opener) -> None:
        """Stores declared in another order would read each other's data: refused, naming both."""
        reopen().write([(0, b"k", b"1")])
        with pytest.raises(ConfigError, match=r"id 0 is 'counts' on disk and 'words' in the job"):
            reopen({0: "words", 3: "counts"})

    def test_an_unknown_store_id_is_refused_and_nothing_is_written(self, store: StateStore) -> None:
        """A write to a store that the job does not declare fails as a whole."""
        calls: list[Callable[[], object]] = [
            lambda: store.write([(0, b"k", b"1"), (8, b"k", b"1")], b"position"),
            lambda: store.load(8, [b"k"], [b"1"]),
            lambda: store.get(8, b"k"),
            lambda: store.get_many(8, [b"k"]),
            lambda: store.scan(8, b"", None),
        ]
        for call in calls:
            with pytest.raises(ConfigError, match=r"store id 8 .*counts"):
                call()
        assert (store.changelog_position(), rows(store)) == (None, [])

    def test_a_batch_whose_source_fails_writes_nothing(self, store: StateStore) -> None:
        """An error of the iterable passes through as it is, and no half of a batch is written."""

        def source() -> Iterator[tuple[int, bytes, bytes | None]]:
            yield 0, b"k", b"1"
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.write(source(), b"position")
        assert (store.changelog_position(), rows(store)) == (None, [])
