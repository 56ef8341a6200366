"""The state of one task at one of its commits, on the audit's own disk; the changelog brings it to the next one."""

from collections.abc import Iterator
from pathlib import Path

from grete.api.jobs.graph import StageGraph
from grete.core.changelog.changelog_fold import ChangelogFold, Segment
from grete.errors import ConfigError, FrameworkError
from grete.execution.build import store_names
from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.changelog import REWRITTEN, decode_data
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position, encode_changelog_position
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.write.rebuild import position_of, rebuild
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore

EntryPlace = tuple[int, bytes]  # store id, key
StepWrites = dict[EntryPlace, bytes | None]  # None: deleted


class StateReplaced(FrameworkError):
    """State was written from outside of the job (a backfill, a rescale, a fork, Spark): no input makes it again."""


class StateCopy:
    """One task's state. ``store`` answers for the commit at ``at``; None: it is no state yet."""

    def __init__(self, directory: Path, stage: StageGraph, memory: RocksMemory) -> None:
        """Open it, or make it empty. Raises TransientError if another process has it open."""
        self.store = RocksStore(directory, store_names(stage), memory, stage.dropped_ids.values())

    @property
    def at(self) -> ChangelogPosition | None:
        """The commit that this is the state of."""
        raw = self.store.changelog_position()
        return None if raw is None else decode_changelog_position(raw)

    def build(self, log: LogReader, snapshot: Snapshot) -> None:
        """Take the state of a commit from its changelog. Raises ConfigError: not retained any more."""
        rebuild(self.store, log, snapshot)

    def bring_to(self, log: LogReader, snapshot: Snapshot) -> None:
        """Bring it to a commit, from whatever it is at, in one step. Raises as ``writes_between`` and ``build``."""
        at = self.at
        if at == position_of(snapshot):
            return
        if at is None or not log.bounds(snapshot.changelog)[0] <= at.offset < snapshot.offset:
            self.build(log, snapshot)
            return
        writes = writes_between(log, at.offset, snapshot)
        rows_ = ((store, key, value) for (store, key), value in writes.items())
        self.store.write(rows_, encode_changelog_position(position_of(snapshot)))

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def segments_between(log: LogReader, after: int, snapshot: Snapshot) -> Iterator[Segment]:
    """Yield the writes of the commits behind that at offset ``after``, up to a snapshot.

    Raises OffsetOutOfRange: trimmed meanwhile; StateReplaced; ConfigError: it is another log.
    """
    fold = ChangelogFold(snapshot.changelog, after)
    for row in rows(log, snapshot.changelog, after, snapshot.offset + 1, acknowledged=snapshot.offset + 1):
        segment = fold.feed(row.offset, row.value or b"")
        if fold.in_doubt is not None:
            raise StateReplaced(f"task {snapshot.task}: state was written from outside of the job")
        if segment is None or segment.offset <= after:
            continue
        if segment.commit.bulk_write_id is not None:
            raise StateReplaced(f"task {snapshot.task}: state was written from outside of the job")
        yield segment
    if fold.last is None or fold.last.checkpoint_id != snapshot.commit.checkpoint_id:
        raise ConfigError(
            f"task {snapshot.task}: there is no commit of checkpoint {snapshot.commit.checkpoint_id} behind offset "
            f"{after} of {snapshot.changelog}: this is the log of another job",
            task=snapshot.task,
            partition=snapshot.changelog,
        )


def writes_between(log: LogReader, after: int, snapshot: Snapshot) -> StepWrites:
    """Return the last write of these commits to each key, rewrites included. Raises the same."""
    writes: StepWrites = {}
    for segment in segments_between(log, after, snapshot):
        for message in segment.messages:
            data = decode_data(message)
            if data.reset_stores not in (None, REWRITTEN):
                raise StateReplaced(f"task {snapshot.task}: state was written from outside of the job")
            writes.update(zip(zip(data.stores, data.keys, strict=True), data.values, strict=True))
    return writes
