"""Reading state from outside: beside the process that writes it, through its wipes, by the store's own serdes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from grete import Input, Job, Record, Store, Task, Topic, int64, json, utf8
from grete.errors import ConfigError
from grete.protocol.partitioner import partition_of
from grete.state.read.local_reader import LocalReader
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore


class Count(Task):
    """Two stores; only their declarations matter here."""

    lines = Input(Topic("lines", key=utf8, value=utf8))
    words = Store("words", key=utf8, value=json(list[int]))
    numbers = Store("numbers", key=int64, value=utf8)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


class Other(Count):
    """A stage with stores of the same names."""

    lines = Input(Topic("others", key=utf8, value=utf8))
    words = Store("words", key=utf8, value=json(list[int]))


job = Job("readable", stages=[Count, Other], partitions=2)
IDS = job.stage("count").store_ids()
NAMES = {number: name for name, number in IDS.items()}
WORDS, NUMBERS = IDS["words"], IDS["numbers"]


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[list[RocksStore]]:
    """Yield the open stores of the two tasks of stage ``count``."""
    memory = RocksMemory(32 << 20)
    stores = [RocksStore(tmp_path / f"count-{number}", NAMES, memory) for number in range(2)]
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LocalReader]:
    """Yield a reader of the same directory."""
    with LocalReader(tmp_path, job) as opened:
        yield opened


def test_reads_follow_the_owner(owners: list[RocksStore], reader: LocalReader) -> None:
    """A read sees what was written before it, while the owner has the store open and goes on."""
    for checkpoint_id in range(3):
        owners[0].write([(WORDS, b"a", b"[%d]" % checkpoint_id)], b"position")
        assert reader.get(Count.words, "a") == [checkpoint_id]
        assert list(reader.all(Count.words)) == [("a", [checkpoint_id])]
    owners[0].write([(WORDS, b"a", None)])
    assert reader.get(Count.words, "a") is None


def test_reads_survive_a_wipe(owners: list[RocksStore], reader: LocalReader) -> None:
    """A worker that restores puts another database in the place of the old one."""
    owners[0].write([(WORDS, b"a", b"[1]")])
    assert reader.get(Count.words, "a") == [1]
    owners[0].wipe()
    assert reader.get(Count.words, "a") is None
    owners[0].load(WORDS, [b"b"], [b"[2]"])
    owners[0].flush()
    assert list(reader.all(Count.words)) == [("b", [2])]


def test_a_key_is_found_in_whichever_partition_has_it(owners: list[RocksStore], reader: LocalReader) -> None:
    """A store's key need not be the record's: the partition of murmur2(key) is only where the search begins."""
    for number in range(20):
        key = b"k%d" % number
        owners[1 - partition_of(key, 2)].write([(WORDS, key, b"[]")])
        assert reader.get(Count.words, key.decode()) == []
    owners[0].write([(WORDS, b"both", b"[0]")])
    owners[1].write([(WORDS, b"both", b"[1]")])
    assert sorted(reader.find(Count.words, "both")) == [(0, [0]), (1, [1])]
    assert next(reader.find(Count.words, "both"))[0] == partition_of(b"both", 2)


def test_scans_are_in_key_order_and_end_with_the_prefix(owners: list[RocksStore], reader: LocalReader) -> None:
    """By partition, in the order of encoded keys: numbers by number."""
    for store in owners:
        store.write([(WORDS, key, b"[]") for key in (b"ab", b"a", b"b", b"a\xc3\xa9")])
    owners[0].write([(NUMBERS, Count.numbers.key.encode(n), b"%d" % n) for n in (2, -1, 10)])
    assert [key for key, _ in reader.prefix(Count.words, "a")] == 2 * ["a", "ab", "aé"]
    assert [key for key, _ in reader.prefix(Count.words, "a", partition=1)] == ["a", "ab", "aé"]
    assert [key for key, _ in reader.all(Count.numbers, 0)] == [-1, 2, 10]


def test_stores_are_found_by_name(reader: LocalReader) -> None:
    """A name that two stages use needs its stage; an unknown one is refused with those that there are."""
    assert reader.store("count/words") is Count.words
    assert reader.store("other/words") is Other.words
    for name in ("words", "sentences"):
        with pytest.raises(ConfigError, match="count/words, count/numbers, other/words"):
            reader.store(name)
    with pytest.raises(ConfigError, match="no stage 'nobody'"):
        reader.store("nobody/words")
    with pytest.raises(ConfigError, match="not declared"):
        reader.get(Store("words", key=utf8, value=utf8), "a")


def test_state_that_is_not_there_is_a_clear_error(reader: LocalReader, tmp_path: Path) -> None:
    """Before the first run there is nothing to read, and reading makes nothing."""
    with pytest.raises(ConfigError, match="run the job first"):
        reader.get(Count.words, "a")
    assert list(tmp_path.iterdir()) == []
