"""Reads the state of a job as of a checkpoint, from its changelogs: no worker, and no local state, is needed."""

from collections.abc import Iterator
from typing import Any, TypeVar

from grete.api.jobs.job import Job
from grete.api.store import Store
from grete.ports import LogReader
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.read.live_entries import rows_of
from grete.state.read.local_reader import decoded_row, key_bytes, place_of, prefix_bytes, store_named

K = TypeVar("K")
V = TypeVar("V")


class SnapshotReader:
    """Offers what a LocalReader does. One store of one task is in memory at a time."""

    def __init__(self, log: LogReader, job: Job, found: list[Snapshot]) -> None:
        """``found``: every task, as ``snapshots.snapshots`` gives them."""
        self._log, self._job, self._found = log, job, found

    def store(self, name: str) -> Store[Any, Any]:
        """Return the store of that name; ``stage/store`` where several stages have one. Raises ConfigError."""
        return store_named(self._job, name)

    def checkpoint(self, store: Store[Any, Any], partition: int) -> int:
        """Return the checkpoint of a partition: if its task has left out the one that was asked for, the one before."""
        return self._of(store, partition).commit.checkpoint_id

    def find(self, store: Store[K, V], key: K) -> Iterator[tuple[int, V]]:
        """Yield (partition, value) from each partition that has the key."""
        wanted = key_bytes(self._job, store, key)
        for partition, raw_key, raw in self._rows(store):
            if raw_key == wanted:
                yield partition, decoded_row(store, raw_key, raw)[1]

    def prefix(self, store: Store[K, V], prefix: K | tuple[Any, ...]) -> Iterator[tuple[K, V]]:
        """Yield (key, value) whose encoded key starts with the encoded ``prefix``, in key order within a partition."""
        wanted = prefix_bytes(self._job, store, prefix)
        return (decoded_row(store, key, raw) for _, key, raw in self._rows(store) if key.startswith(wanted))

    def all(self, store: Store[K, V]) -> Iterator[tuple[K, V]]:
        """Yield every (key, value)."""
        return (decoded_row(store, key, raw) for _, key, raw in self._rows(store))

    def _rows(self, store: Store[Any, Any]) -> Iterator[tuple[int, bytes, bytes]]:
        for partition in range(place_of(self._job, store)[0].partitions):
            for key, value in self.raw(store, b"", partition):
                yield partition, key, value

    def raw(
        self, store: Store[Any, Any], prefix: bytes, partition: int, begin: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of one partition as bytes, in key order from the key ``begin`` on."""
        found = rows_of(self._log, self._of(store, partition), store, place_of(self._job, store)[1])
        yield from sorted((key, value) for key, value in found if key.startswith(prefix) and key >= begin)

    def _of(self, store: Store[Any, Any], partition: int) -> Snapshot:
        return self._found[self._job.tasks_of(place_of(self._job, store)[0].ordinal)][partition]
