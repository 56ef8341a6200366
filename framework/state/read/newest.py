"""Reads the newest committed state of a job, while it runs or not, on any machine.

A local store answers only if the changelog says that it has what is committed: the worker may have moved to another
machine since, and then the store here is outdated. Tasks whose store cannot answer are read from their changelog.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from grete.api.jobs.job import Job
from grete.api.store import Store
from grete.closable import Closable
from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, OffsetOutOfRange
from grete.execution.changelog.changelog_writer import find_outcome
from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position
from grete.protocol.ids import split_producer_id
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import newest, refuse_other_graph
from grete.state.read.live_entries import rows_of, stored_of
from grete.state.read.local_reader import (
    LocalReader,
    decoded_row,
    key_bytes,
    place_of,
    places_of,
    prefix_bytes,
    store_named,
)
from grete.stores.overlay.expiring_store import expiry_of

K = TypeVar("K")
V = TypeVar("V")

APPLY_S_MAX = 2.0  # how long a worker gets to apply what it has committed; then the changelog is read
_PAUSE_S = 0.02  # between two looks at the store: a worker applies a commit in some ms


class StoreSize(NamedTuple):
    """One store of one task, as stored: expired entries count until they are deleted.

    ``size_bytes``: of keys and values. ``oldest_ms``: event time, of a store with ttl_ms.
    """

    task: str
    store: str
    entries: int
    size_bytes: int
    oldest_ms: int | None


class NewestReader(Closable):
    """Offers what a LocalReader does. Each read sees at least what was committed before it began."""

    def __init__(self, log: LogReader, job: Job, directory: Path, say: Callable[[str], None]) -> None:
        """``directory``: of the local stores. ``say`` gets a line for each task that its changelog answers for."""
        self._log, self._job, self._say = log, job, say
        self._directory = directory
        self._local = LocalReader(directory, job)
        self._wirings = {wiring.name: wiring for wiring in all_wirings(job)}
        self._checkpoints: dict[str, int] = {}  # task → the checkpoint that it was read at last
        self._whole: dict[str, int] = {}  # task → the end of its changelog when its store, as it is seen, had all

    def store(self, name: str) -> Store[Any, Any]:
        """Return the store of that name; ``stage/store`` where several stages have one. Raises ConfigError."""
        return store_named(self._job, name)

    def find(self, store: Store[K, V], key: K) -> Iterator[tuple[int, V]]:
        """Yield (partition, value) from each partition that has the key: the one by murmur2 is asked first."""
        wanted = key_bytes(self._job, store, key)
        for partition in places_of(self._job, store, wanted):
            if self._is_current(store, partition):
                value = self._local.at(store, key, partition)
                if value is not None:
                    yield partition, value
            else:
                yield from (
                    (partition, decoded_row(store, raw_key, raw)[1])
                    for raw_key, raw in self._rows(store, partition)
                    if raw_key == wanted
                )

    def prefix(self, store: Store[K, V], prefix: K | tuple[Any, ...]) -> Iterator[tuple[K, V]]:
        """Yield (key, value) whose encoded key starts with the encoded ``prefix``, in key order within a partition."""
        return self._scan(store, prefix_bytes(self._job, store, prefix))

    def all(self, store: Store[K, V]) -> Iterator[tuple[K, V]]:
        """Yield every (key, value)."""
        return self._scan(store, b"")

    def checkpoint(self, store: Store[Any, Any], partition: int) -> int | None:
        """Return the checkpoint whose state was read last of a partition; None: it has committed none."""
        return self._checkpoints.get(f"{place_of(self._job, store)[0].name}-{partition}")

    def range(self, store: Store[K, V], start: K | None, end: K | None) -> Iterator[tuple[K, V]]:
        """Yield (key, value), start <= key < end, in key order within a partition; None leaves that side open."""
        begin, until = (None if key is None else key_bytes(self._job, store, key) for key in (start, end))
        for partition in self._partitions(store):
            for raw_key, raw in self.raw(store, b"", partition, begin or b""):
                if until is not None and raw_key >= until:
                    break
                yield decoded_row(store, raw_key, raw)

    def _partitions(self, store: Store[Any, Any]) -> Sequence[int]:
        return range(place_of(self._job, store)[0].partitions)

    def sizes(self, store: Store[Any, Any]) -> Iterator[StoreSize]:
        """Yield the size of each task's part of a store: every entry is looked at."""
        stage, number = place_of(self._job, store)
        for partition in range(stage.partitions):
            task = f"{stage.name}-{partition}"
            if self._is_current(store, partition):
                yield _measured(task, store, self._local.stored(store, partition))
            elif (snapshot := newest(self._log, self._wirings[task])) is not None:
                yield _measured(task, store, stored_of(self._log, snapshot, number))

    def close(self) -> None:
        """Close the files of the local stores."""
        self._local.close()

    def _scan(self, store: Store[K, V], prefix: bytes) -> Iterator[tuple[K, V]]:
        for partition in self._partitions(store):
            yield from (decoded_row(store, *row) for row in self.raw(store, prefix, partition))

    def raw(
        self, store: Store[Any, Any], prefix: bytes, partition: int, begin: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of one partition as bytes, in key order from the key ``begin`` on."""
        if self._is_current(store, partition):
            yield from self._local.raw(store, prefix, partition, begin)
        else:
            rows = self._rows(store, partition)
            yield from ((key, raw) for key, raw in rows if key.startswith(prefix) and key >= begin)

    def _rows(self, store: Store[Any, Any], partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of one task, in key order, from its changelog; none before its first commit."""
        stage, number = place_of(self._job, store)
        snapshot = newest(self._log, self._wirings[f"{stage.name}-{partition}"])
        if snapshot is None:
            return
        self._checkpoints[snapshot.task] = snapshot.commit.checkpoint_id
        yield from sorted(rows_of(self._log, snapshot, store, number))

    # --- which of the two answers ---

    def _is_current(self, store: Store[Any, Any], partition: int) -> bool:
        stage, _ = place_of(self._job, store)
        wiring = self._wirings[f"{stage.name}-{partition}"]
        if self._local.look_again(store, partition):
            self._whole.pop(wiring.name, None)
        reason = self._why_not(wiring)
        if reason is not None:
            self._say(f"{wiring.name}: read from its changelog: {reason}")
        return reason is None

    def _why_not(self, wiring: TaskWiring) -> str | None:
        """Return the reason why the local store of a task may not answer, None if it is the state of the last commit.

        The store is looked at before the changelog: a worker writes no part of a commit that is not there yet.
        """
        if self._whole.get(wiring.name) == self._log.bounds(wiring.changelog)[1]:
            return None  # nothing was committed since: to catch up with the worker takes some ms
        deadline = time.monotonic() + APPLY_S_MAX
        while True:
            changelog_position = self._changelog_position(wiring)
            if changelog_position is None:
                return f"there is no committed state of it in {self._directory}"
            end = self._log.bounds(wiring.changelog)[1]
            try:
                fold = self._fold_from(wiring, changelog_position, end)
            except OffsetOutOfRange:
                fold = None
            if fold is None:
                return f"the commit that the state in {self._directory} ends with is not in it (any more)"
            if fold.last is None or fold.last_offset == changelog_position.offset:
                self._checkpoints[wiring.name] = changelog_position.checkpoint_id
                return None
            if fold.top != changelog_position.generation or time.monotonic() >= deadline:
                return (
                    f"the state in {self._directory} ends with checkpoint {changelog_position.checkpoint_id} of "
                    f"generation {changelog_position.generation}, and checkpoint {fold.last.checkpoint_id} of "
                    f"generation {fold.last.generation} is committed"
                )
            time.sleep(_PAUSE_S)  # the worker that committed it applies it, unless another process has taken over

    def _changelog_position(self, wiring: TaskWiring) -> ChangelogPosition | None:
        try:
            raw = self._local.changelog_position(wiring.name)
        except ConfigError:  # no such directory
            return None
        return None if raw is None else decode_changelog_position(raw)

    def _fold_from(self, wiring: TaskWiring, changelog_position: ChangelogPosition, end: int) -> ChangelogFold | None:
        """Return the fold of a changelog from the commit that a store names up to ``end``; None: it is another message.

        A worker that was replaced never applies a commit that does not count, so the first one does (R1).
        """
        changelog = wiring.changelog
        fold = ChangelogFold(changelog, changelog_position.offset)
        for row in rows(self._log, changelog, changelog_position.offset, end):
            fold.feed(row.offset, row.value or b"")
            commit = fold.base
            if commit is None or (commit.generation, commit.checkpoint_id, commit.nonce) != changelog_position[1:]:
                return None
        if fold.base is None:
            return None
        ordinal, _ = split_producer_id(wiring.producer)
        if self._log.partitions(changelog.topic) != self._job.stages[ordinal].partitions:
            refuse_other_graph(self._log, wiring, fold.base)
        if fold.in_doubt is not None:
            fold.settle(fold.in_doubt, bool(find_outcome(self._log, wiring.outcome_changelog, fold.in_doubt)))
        elif fold.last_offset == changelog_position.offset:
            self._whole[wiring.name] = end
        return fold


def _measured(task: str, store: Store[Any, Any], rows: Iterable[tuple[bytes, bytes]]) -> StoreSize:
    """Return the size of these stored entries, which are looked at one by one."""
    entries = size = 0
    first: int | None = None
    for key, stored in rows:
        entries += 1
        size += len(key) + len(stored)
        if store.ttl_ms is not None:
            at = expiry_of(stored) - store.ttl_ms
            first = at if first is None else min(first, at)
    return StoreSize(task, store.name, entries, size, first)
