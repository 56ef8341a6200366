"""Our stores keep the contract of a state store (framework/testing/contracts/store.py)."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from framework.ports import StateStore
from framework.stores.memory import MemoryDisk, MemoryStore
from framework.stores.rocksdb import RocksStore
from framework.stores.rocksdb_memory import RocksMemory
from framework.testing.contracts import StoreContract


class TestStores(StoreContract):
    """Memory and RocksDB."""

    @pytest.fixture(params=["memory", "rocks"])
    def open_store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Mapping[int, str]], StateStore]:
        """Return what opens the same store each time."""
        if request.param == "memory":
            disk = MemoryDisk()
            return lambda names: MemoryStore(names, disk)
        memory = RocksMemory(32 << 20)
        return lambda names: RocksStore(tmp_path / "task", names, memory)
