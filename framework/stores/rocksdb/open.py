"""Opening the RocksDB store of a task, and wiping one that cannot be opened."""

import logging
from collections.abc import Collection
from pathlib import Path

from grete.errors import StoreCorrupted
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from grete.stores.store_directory import wipe_directory

logger = logging.getLogger("grete")


def open_store(
    directory: Path, stores: dict[int, str], memory: RocksMemory, dropped: Collection[int] = ()
) -> RocksStore:
    """Open a task's store; wipe a corrupt one: the changelog is the truth. Raises TransientError if it is in use."""
    try:
        return RocksStore(directory, stores, memory, dropped)
    except StoreCorrupted as error:
        logger.warning(
            "store wiped, restoring from the changelog", extra={"directory": str(directory), "error": str(error)}
        )
        wipe_directory(directory)
        return RocksStore(directory, stores, memory, dropped)
