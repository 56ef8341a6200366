"""Takes a task's snapshot as files, for workers on other machines (0090): from its local store, else its changelog.

The worker may run meanwhile. A copy of its store may have a part of the commit that the worker is applying, so what the
changelog has behind the store's changelog position is applied to the copy as well, up to the newest commit: the files
are the state of exactly that one, whichever way they came.
"""

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.core.changelog.changelog_fold import ChangelogFold, Segment
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, StoreCorrupted
from grete.execution.build import store_names
from grete.execution.changelog.changelog_writer import apply_segment
from grete.execution.prebuilt.sst_install import check_commit
from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position, encode_changelog_position
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import CommittedAt, newest_commit
from grete.state.read.checkpoints.snapshots import refuse_other_graph, segments, snapshot_at
from grete.stores.rocksdb.copy import copy_open_store
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from grete.stores.snapshot_folder import SnapshotFolder, SnapshotManifest, UploadResult
from grete.stores.store_directory import make_private

logger = logging.getLogger("grete")

LOCAL, CHANGELOG = "local store", "changelog"  # where the state came from


class TakenSnapshot(NamedTuple):
    """One snapshot. ``uploaded`` None: it was there already."""

    at: CommittedAt
    source: str
    uploaded: UploadResult | None


class SnapshotUpload:
    """Takes snapshots of one job's tasks into a folder, by copies below ``scratch``, best on the disk of the stores."""

    def __init__(self, log: LogReader, job: str, folder: SnapshotFolder, scratch: Path, rocksdb_bytes: int) -> None:
        self._log, self._job, self._folder = log, job, folder
        self._scratch, self._rocksdb_bytes = scratch, rocksdb_bytes

    def take(self, graph: StageGraph, wiring: TaskWiring, local: Path) -> TakenSnapshot | None:
        """Take a snapshot of a task at its newest commit; ``local``: where its store may be. None: it has no commit.

        Only one process at a time may take one of a task here. Raises ConfigError: another graph, or the folder is of
        another log; TransientError: the folder, or the log, is away, or the disk is full; Halted: a damaged changelog.
        """
        there = self._newest_there(wiring)
        copy = self._scratch / wiring.name
        try:
            copied = copy_open_store(local, copy)
            at = newest_commit(self._log, wiring)  # not before the copy: its store may not be ahead of it
            if at is None:
                return None
            refuse_other_graph(self._log, wiring, at.commit)
            position = _position_of(at)
            is_newest = there is not None and there.changelog_position == position
            if there is not None and is_newest and not self._folder.lacking(wiring.name, there):
                return TakenSnapshot(at, LOCAL if copied else CHANGELOG, None)
            source = self._bring_up(copy, graph, wiring, at, copied=copied)
            manifest = SnapshotManifest(
                job=self._job,
                task=wiring.name,
                fingerprint=at.commit.fingerprint,
                offset=position.offset,
                generation=position.generation,
                checkpoint_id=position.checkpoint_id,
                nonce=position.nonce.hex(),
                stores=store_names(graph),
                files=[],
            )
            return TakenSnapshot(at, source, self._folder.put(wiring.name, copy, manifest))
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _newest_there(self, wiring: TaskWiring) -> SnapshotManifest | None:
        """Return the newest snapshot of the folder that can be read. Raises ConfigError: it is of another log."""
        for name in self._folder.manifests(wiring.name):
            try:
                there = self._folder.manifest(wiring.name, name)
            except StoreCorrupted:
                continue
            try:
                if there.offset >= self._log.bounds(wiring.changelog)[0]:
                    check_commit(self._log, wiring.changelog, there.changelog_position)
            except StoreCorrupted as error:
                raise ConfigError(
                    f"{self._folder.place(wiring.name, name)} is a snapshot of another log: {error}. Give each log a "
                    "folder of its own, or delete this one",
                    task=wiring.name,
                ) from error
            return there
        return None

    def _bring_up(self, copy: Path, graph: StageGraph, wiring: TaskWiring, at: CommittedAt, *, copied: bool) -> str:
        """Make a copy, or an empty directory, the closed store of a commit; return where the state came from."""
        if copied:
            try:
                self._fill(copy, graph, wiring, at, compact=False)
            except StoreCorrupted as error:
                logger.warning(
                    "local store left out of a snapshot", extra={"directory": str(copy), "error": str(error)}
                )
            else:
                return LOCAL
        shutil.rmtree(copy, ignore_errors=True)
        make_private(copy)
        self._fill(copy, graph, wiring, at, compact=True)
        return CHANGELOG

    def _fill(self, copy: Path, graph: StageGraph, wiring: TaskWiring, at: CommittedAt, *, compact: bool) -> None:
        """Apply to a store what the changelog has up to a commit.

        Not ``compact``: its files stay those of the store that was copied, of which most are in the folder already.
        Raises StoreCorrupted: the store has a changelog position, and the changelog cannot go on from it.
        """
        memory = RocksMemory(self._rocksdb_bytes, compact=compact)
        store = RocksStore(copy, store_names(graph), memory, graph.dropped_ids.values())
        try:
            own = store.changelog_position()
            if own is None and not compact:
                raise StoreCorrupted("its worker has not restored it yet")
            self._apply(store, wiring, at, None if own is None else decode_changelog_position(own))
            store.flush()
            if own is None or decode_changelog_position(own).offset < at.offset:
                store.write((), encode_changelog_position(_position_of(at)))
        finally:
            store.close()

    def _apply(self, store: RocksStore, wiring: TaskWiring, at: CommittedAt, own: ChangelogPosition | None) -> None:
        changelog = wiring.changelog
        if own is None:
            _apply_all(store, changelog, segments(self._log, snapshot_at(self._log, wiring, at)))
            return
        check_commit(self._log, changelog, own)
        if own.offset >= at.offset:
            if own != _position_of(at):
                raise StoreCorrupted(f"it is at offset {own.offset}, the newest commit at {at.offset}")
            return
        fold = ChangelogFold(changelog, own.offset)
        for row in rows(self._log, changelog, own.offset, at.offset + 1):
            _apply_all(store, changelog, [fold.feed(row.offset, row.value or b"")])
        if fold.in_doubt is not None:  # of a bulk write that counts: else it were not the newest commit
            _apply_all(store, changelog, [fold.settle(fold.in_doubt, counts=True)])
        if fold.last != at.commit:
            raise StoreCorrupted(f"the changelog does not lead from offset {own.offset} to the commit at {at.offset}")


def _apply_all(store: RocksStore, changelog: TopicPartition, parts: Iterable[Segment | None]) -> None:
    for segment in parts:
        for message in () if segment is None else segment.messages:
            apply_segment(str(changelog), store, message)


def _position_of(at: CommittedAt) -> ChangelogPosition:
    return ChangelogPosition(at.offset, at.commit.generation, at.commit.checkpoint_id, at.commit.nonce)
