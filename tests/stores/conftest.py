"""A small RocksDB."""

import random
from pathlib import Path

import pytest

from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore

NAMES = {0: "counts", 1: "words"}


@pytest.fixture
def memory() -> RocksMemory:
    """Return a small budget."""
    return RocksMemory(16 << 20)


@pytest.fixture
def filled(tmp_path: Path, memory: RocksMemory) -> Path:
    """Return the directory of a closed store.

    It has 2,000 keys in an SST file, and one more key and a changelog position in the log.
    """
    path = tmp_path / "task"
    store = RocksStore(path, NAMES, memory)
    noise = random.Random(1)
    store.load(0, [b"%05d" % i for i in range(2000)], [noise.randbytes(100) for _ in range(2000)])
    store.write([(1, b"w", b"1")], b"position")
    store.close()
    return path
