"""Our stores keep the contract of a state store (framework/testing/contracts/store.py)."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from grete.ports import StateStore
from grete.stores.memory import MemoryDisk, MemoryStore
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from grete.testing.contracts import StoreContract


class TestStores(StoreContract):
    """Memory and RocksDB."""

    @pytest.fixture(params=["memory", "rocks"])
    def open_store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Mapping[int, str]], StateStore]:
        """Return a function that opens the same store each time."""
        if request.param == "memory":
            disk = MemoryDisk()
            return lambda names: MemoryStore(names, disk)
        memory = RocksMemory(32 << 20)
        return lambda names: RocksStore(tmp_path / "task", names, memory)
