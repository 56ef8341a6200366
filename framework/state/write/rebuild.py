"""Rebuilds local stores from their changelogs, as of a checkpoint."""

from collections.abc import Iterator
from pathlib import Path

from grete.api.jobs.job import Job
from grete.execution.build import store_names
from grete.execution.changelog.changelog_writer import apply_segment
from grete.ports import LogReader
from grete.protocol.changelog_position import ChangelogPosition, encode_changelog_position
from grete.settings import Settings
from grete.state.read.checkpoints.snapshots import Snapshot, segments
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.open import open_store
from grete.stores.rocksdb.store import RocksStore


def replay(
    log: LogReader, job: Job, snapshots: list[Snapshot], directory: Path, settings: Settings
) -> Iterator[tuple[str, int]]:
    """Rebuild the stores of all tasks below ``directory`` from the changelogs; yield (task, entries applied).

    What is there is wiped. A worker that finds them goes on from these commits. Raises TransientError: one is in use.
    """
    memory = RocksMemory(settings.rocksdb_bytes)
    for (graph, _), snapshot in zip(job.tasks(), snapshots, strict=True):
        store = open_store(directory / snapshot.task, store_names(graph), memory, graph.dropped_ids.values())
        try:
            count = rebuild(store, log, snapshot)
        finally:
            store.close()
        yield snapshot.task, count


def rebuild(store: RocksStore, log: LogReader, snapshot: Snapshot) -> int:
    """Let a store hold the state of a commit, and nothing else; return the number of entries applied.

    Raises ConfigError: not retained any more.
    """
    store.wipe()
    applied = sum(
        apply_segment(str(snapshot.changelog), store, message)
        for segment in segments(log, snapshot)
        for message in segment.messages
    )
    store.flush()
    store.write((), encode_changelog_position(position_of(snapshot)))
    return applied


def position_of(snapshot: Snapshot) -> ChangelogPosition:
    """Return the position of a store that holds the state of a commit."""
    commit = snapshot.commit
    return ChangelogPosition(snapshot.offset, commit.generation, commit.checkpoint_id, commit.nonce)
