"""More keys than memory holds: whether a key is new must not cost the read of a file's whole filter."""

import random
from pathlib import Path

from rocksdict import Options

from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore

KEYS = 1_000_000  # 1.25 MB of filters; at 8 MiB the cache takes no block above 512 KiB
ASKED = 5_000


class Counting(RocksMemory):
    """A budget whose database counts what it does."""

    counted: Options | None = None

    def options(self) -> Options:
        """Return the options; those of the database are asked for first."""
        options = super().options()
        options.enable_statistics()
        self.counted = self.counted or options
        return options

    def count(self, name: str) -> int:
        """Return the count of RocksDB under a name."""
        assert self.counted is not None
        lines = (self.counted.get_statistics() or "").splitlines()
        return next(int(line.split()[-1]) for line in lines if line.startswith(f"{name} COUNT"))


def test_a_new_key_costs_little_where_the_filters_do_not_fit(tmp_path: Path) -> None:
    """Filters are read in pieces; they let through one in a hundred."""
    draw, memory = random.Random(1), Counting(8 << 20)
    store = RocksStore(tmp_path / "store", {0: "ids"}, memory)
    for _ in range(KEYS // 20_000):
        store.write([(0, draw.randbytes(16), b"12345678") for _ in range(20_000)])
    names = [
        "rocksdb.block.cache.bytes.write",
        "rocksdb.bloom.filter.useful",
        "rocksdb.bloom.filter.full.positive",
    ]
    before = [memory.count(name) for name in names]
    assert all(store.get(0, draw.randbytes(16)) is None for _ in range(ASKED))
    read_bytes, spared, let_through = (memory.count(name) - count for name, count in zip(names, before, strict=True))
    store.close()
    assert spared > ASKED
    assert let_through < 0.02 * spared
    assert read_bytes < 16_384 * ASKED


def test_files_stay_open_between_reads(tmp_path: Path) -> None:
    """Each of fewer files than may be open is opened once: to open one is to read its index and filter."""
    memory, names = Counting(64 << 20), {number: f"s{number}" for number in range(30)}
    store = RocksStore(tmp_path / "store", names, memory)
    store.write([(number, b"key", b"value") for number in names])
    store.close()
    memory.counted = None
    store = RocksStore(tmp_path / "store", names, memory)

    def read_all() -> None:
        assert all(store.get(number, b"key") == b"value" for number in names)

    read_all()
    before = memory.count("rocksdb.no.file.opens")
    for _ in range(10):
        read_all()
    opened = memory.count("rocksdb.no.file.opens") - before
    files = len(list((tmp_path / "store").glob("*.sst")))
    store.close()
    assert files >= len(names)
    assert opened == 0
