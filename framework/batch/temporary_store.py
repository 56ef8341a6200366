"""The store of a batch task's state that does not fit in memory: a RocksDB that is made when it is first needed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory

from grete.ports import Write
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore


class Scratch:
    """ports.StateStore that begins empty and ends with ``close``; until it is written to, it costs nothing."""

    def __init__(self, names: Mapping[int, str], memory_bytes: int) -> None:
        """``memory_bytes``: RocksDB's budget."""
        self._names = names
        self._memory_bytes = memory_bytes
        self._directory: TemporaryDirectory[str] | None = None
        self._store: RocksStore | None = None

    @property
    def used(self) -> bool:
        """Whether anything has been written."""
        return self._store is not None

    def changelog_position(self) -> bytes | None:
        """Return None: it never is the state of a commit."""
        return None

    def get(self, store: int, key: bytes) -> bytes | None:
        """Return the value or None."""
        return None if self._store is None else self._store.get(store, key)

    def get_many(self, store: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None, in the order of ``keys``."""
        return [None] * len(keys) if self._store is None else self._store.get_many(store, keys)

    def scan(
        self, store: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with start <= key < end in key order (``reverse``: from the last on), as of the call."""
        return iter(()) if self._store is None else self._store.scan(store, start, end, reverse=reverse)

    def last_key(self, store: int) -> bytes | None:
        """Return the last key in key order, or None."""
        return None if self._store is None else self._store.last_key(store)

    def write(self, writes: Iterable[Write], changelog_position: bytes | None = None) -> None:
        """Take the writes: as files in key order, without a log, for nothing here outlives the process."""
        for store, same in groupby(writes, itemgetter(0)):
            _, keys, values = zip(*same, strict=True)
            self.load(store, keys, values)

    def load(self, store: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Take columns of one store."""
        self._opened().load(store, keys, values)

    def flush(self) -> None:
        """Do nothing: nothing here outlives the process."""

    def wipe(self) -> None:
        """Begin empty again."""
        self.close()

    def close(self) -> None:
        """Delete what was written."""
        if self._store is not None:
            self._store.close()
            self._store = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _opened(self) -> RocksStore:
        if self._store is None:
            self._directory = TemporaryDirectory(prefix="grete-batch-")
            self._store = RocksStore(Path(self._directory.name) / "state", self._names, RocksMemory(self._memory_bytes))
        return self._store
