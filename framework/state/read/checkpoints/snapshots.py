"""The retained checkpoints of a job, as its changelogs hold them, and the state of each (K2).

Reads only, and needs no worker. A few reads find a checkpoint; the fold decides whether it is valid.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, repeat
from typing import NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.core.changelog.changelog_fold import ChangelogFold, Segment
from grete.core.changelog.damage import unreadable
from grete.core.graph.task_topology import TaskWiring
from grete.core.limits import TAIL_MESSAGES
from grete.errors import ConfigError, Halted, OffsetOutOfRange
from grete.execution.changelog.changelog_writer import find_outcome
from grete.halts import HaltCode
from grete.logs.partition_reader import rows, rows_left
from grete.logs.searched import SearchedLog
from grete.ports import LogReader
from grete.protocol.changelog import decode_data
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commit_search import at_most, commit_in, first_at_least, first_from, last_at_most
from grete.state.read.checkpoints.commits import CommittedAt, all_wirings
from grete.state.read.checkpoints.nearest import AsOf, check_known, common, has, up_to

Entries = dict[bytes, tuple[bytes | None, int]]  # key → (value, index of the commit that wrote it); None: deleted


class Snapshot(NamedTuple):
    """One task at one checkpoint.

    Its state is the fold of its changelog from ``begin`` up to the commit at ``offset``.
    """

    task: str
    changelog: TopicPartition
    offset: int
    begin: int
    commit: Commit


def commits(log: LogReader, wiring: TaskWiring) -> Iterator[CommittedAt]:
    """Yield every valid commit (C2) that the changelog still holds, oldest first, bulk writes that count included.

    Raises Halted if it is damaged.
    """
    changelog = wiring.changelog
    start, end = log.bounds(changelog)
    fold = ChangelogFold(changelog, start)
    in_doubt: CommittedAt | None = None
    for row in rows(log, changelog, start, end):
        segment = fold.feed(row.offset, row.value or b"")
        if segment is not None:
            commit = segment.commit
            if in_doubt is not None and in_doubt.commit.checkpoint_id in (commit.checkpoint_id, commit.previous):
                yield in_doubt
            if in_doubt is None or in_doubt.offset != segment.offset:
                yield CommittedAt(row.offset, row.append_time_ms, commit)
            in_doubt = None
        elif fold.in_doubt is not None and (in_doubt is None or in_doubt.commit.bulk_write_id != fold.in_doubt):
            in_doubt = CommittedAt(row.offset, row.append_time_ms, decode_commit(row.value or b""))
    if in_doubt is not None and find_outcome(log, wiring.outcome_changelog, in_doubt.commit.bulk_write_id or ""):
        yield in_doubt


def fold_to_end(log: LogReader, wiring: TaskWiring) -> ChangelogFold:
    """Return the fold of a changelog as it is now, from the start of its last complete round on (R1).

    A bulk write that is the last commit is in doubt, whatever its outcome. Raises Halted if the changelog is damaged.
    """
    changelog = wiring.changelog
    start, end = log.bounds(changelog)
    base = start
    for row in rows(log, changelog, max(start, end - TAIL_MESSAGES), end):
        commit = commit_in(changelog, row)
        base = base if commit is None else max(base, commit.base)
    fold = ChangelogFold(changelog, base)
    for row in rows(log, changelog, base, end):
        fold.feed(row.offset, row.value or b"")
    return fold


def settled_fold(log: LogReader, wiring: TaskWiring) -> ChangelogFold:
    """Return the same, with the outcome of a bulk write that is the last commit; without an outcome it counts not."""
    fold = fold_to_end(log, wiring)
    if fold.in_doubt is not None:
        fold.settle(fold.in_doubt, bool(find_outcome(log, wiring.outcome_changelog, fold.in_doubt)))
    return fold


def newest(log: LogReader, wiring: TaskWiring) -> Snapshot | None:
    """Return one task at its last commit, whatever the others have; None if it has committed nothing.

    A bulk write without an outcome does not count. Raises ConfigError: another graph; Halted: a damaged changelog.
    """
    fold = fold_to_end(log, wiring)
    if fold.in_doubt is not None:
        fold.settle(fold.in_doubt, bool(find_outcome(log, wiring.outcome_changelog, fold.in_doubt)))
    if fold.last is None:
        return None
    refuse_other_graph(log, wiring, fold.last)
    return Snapshot(wiring.name, wiring.changelog, fold.last_offset, fold.start, fold.last)


def snapshots(log: LogReader, job: Job, asked: AsOf | None = None, *, aligned: bool = True) -> list[Snapshot]:
    """Return every task at a checkpoint, in the order of ``all_wirings``.

    ``asked`` None: the newest that all have committed; a time: the newest up to it. Else some task has committed
    exactly this checkpoint. A source closes its checkpoints by its own clock: it is at its first one that is not lower;
    if no task reads it, and it has none, at its last. A task that has left it out (A6) is at the one before. Without
    alignment (1.5, D4) there is no common checkpoint, and such a task is at its last one that is not higher. Raises
    ConfigError: nothing is committed yet, not this checkpoint (names the nearest), by another graph, or not retained
    any more.
    """
    log, wirings = SearchedLog.of(log), all_wirings(job)
    for stage in job.stages:
        changelog = job.topology().changelog(stage.ordinal)
        there = log.partitions(changelog) or stage.partitions
        if there < stage.partitions:
            raise ConfigError(
                f"job {job.name!r} has {stage.partitions} partitions in its code, and {changelog} has "
                f"{there}: write {stage.declared_with(there)}, or rescale it first",
                stage=stage.name,
            )
    lasts = [last_at_most(log, wiring, None) for wiring in wirings]
    for wiring, last in zip(wirings, lasts, strict=True):
        if last is None:
            raise ConfigError(
                f"task {wiring.name} has committed nothing yet: there is no checkpoint to read", task=wiring.name
            )
    local = {wiring.producer for wiring in wirings if wiring.deterministic or not aligned}
    inner = [wiring for wiring in wirings if not wiring.is_source and wiring.producer not in local]
    aligned_ones = [wiring for wiring in wirings if wiring.producer not in local]
    ends = {w.producer: last.commit.checkpoint_id for w, last in zip(wirings, lasts, strict=True) if last}
    read = [ends[wiring.producer] for wiring in aligned_ones if wiring.is_source and wiring.outputs]
    newest = min(read, default=None)
    chosen = aligned_ones or wirings
    checkpoint_id = up_to(log, chosen, inner, asked, newest) if isinstance(asked, datetime) else asked
    if checkpoint_id is not None:
        exact = (last_at_most(log, wiring, checkpoint_id) for wiring in aligned_ones if inner)
        committed = any(at is not None and at.commit.checkpoint_id == checkpoint_id for at in exact)
        if not (committed and all(has(log, wirings, wiring, checkpoint_id) for wiring in inner)):
            check_known(log, job, inner or chosen, checkpoint_id, by_all=bool(inner))
    found = checkpoint_id
    if found is None and aligned_ones:
        found = common(log, wirings, inner, max(ends[w.producer] for w in aligned_ones) if newest is None else newest)

    def at(wiring: TaskWiring) -> CommittedAt:
        if wiring.producer in local:
            return at_most(log, wiring, checkpoint_id)
        assert found is not None
        if wiring.is_source and not wiring.outputs:  # it is idle, perhaps, and no task depends on how far it is
            return first_from(log, wiring, found) or at_most(log, wiring, None)
        return first_at_least(log, wiring, found) if wiring.is_source else at_most(log, wiring, found)

    return [snapshot_at(log, wiring, at(wiring)) for wiring in wirings]


def id_of_all(found: Sequence[Snapshot]) -> int:
    """Return the checkpoint of snapshots: who asks for it gets them again.

    A task that reads of aligned ones is at it, or at the one before if it has left it out.
    """
    ids = [each.commit.checkpoint_id for each in found]
    inner = [each.commit.checkpoint_id for each in found if each.commit.inputs and each.commit.deterministic is None]
    return max(inner or ids)


def segments(log: LogReader, snapshot: Snapshot) -> Iterator[Segment]:
    """Yield the writes of the valid commits up to a snapshot, oldest first: its state, and what it overwrote (R1).

    Raises ConfigError at the end if the snapshot's commit turns out invalid, or has been trimmed; Halted if it is
    damaged.
    """
    task, changelog, offset, begin, commit = snapshot
    fold = ChangelogFold(changelog, begin)
    try:
        for row in rows(log, changelog, begin, offset + 1):
            segment = fold.feed(row.offset, row.value or b"")
            if segment is not None:
                yield segment
        if fold.in_doubt is not None:  # it is known to count, or it would not be a snapshot
            segment = fold.settle(fold.in_doubt, counts=True)
            if segment is not None:
                yield segment
    except OffsetOutOfRange as error:
        raise _not_retained(task, commit.checkpoint_id) from error
    if fold.last != commit:  # by its content: an at-least-once log may hold it twice
        raise ConfigError(
            f"task {task}: the commit of checkpoint {commit.checkpoint_id} at offset {offset} of {changelog} is "
            "invalid, it is of a process that had been replaced: read another checkpoint",
            task=task,
            partition=changelog,
            offset=offset,
            checkpoint_id=commit.checkpoint_id,
        )
    if not fold.complete:
        raise _not_retained(task, commit.checkpoint_id)


def contents(parts: Iterable[Segment], wanted: frozenset[int]) -> dict[int, Entries]:
    """Return the entries of the wanted stores, by store id, after these segments."""
    stores: dict[int, Entries] = {store: {} for store in wanted}
    for number, segment in enumerate(parts):
        for message in segment.messages:
            _apply(stores, message, number)
    return stores


def _apply(stores: dict[int, Entries], message: bytes, number: int) -> None:
    """Apply a data message as a restore does."""
    try:
        data = decode_data(message)
    except DecodeError as error:
        raise Halted(
            f"a data message of the changelog: {unreadable(error)}", code=HaltCode.CHANGELOG_DAMAGED
        ) from error
    for reset in data.reset_stores or ():
        if reset in stores:
            stores[reset].clear()
    start = 0
    for store, same in groupby(data.stores):
        end = start + sum(1 for _ in same)
        if store in stores:
            written = zip(data.values[start:end], repeat(number), strict=False)
            stores[store].update(zip(data.keys[start:end], written, strict=False))
        start = end


def snapshot_at(log: LogReader, wiring: TaskWiring, at: CommittedAt) -> Snapshot:
    """Return one task at one of its commits. Raises ConfigError: another graph, or no longer retained."""
    refuse_other_graph(log, wiring, at.commit)
    begin = max(log.bounds(wiring.changelog)[0], at.commit.base)
    if begin > at.offset:
        raise _not_retained(wiring.name, at.commit.checkpoint_id)
    return Snapshot(wiring.name, wiring.changelog, at.offset, begin, at.commit)


def snapshots_at(log: LogReader, job: Job, stage: StageGraph, offsets: Mapping[int, int]) -> list[tuple[int, Snapshot]]:
    """Return (partition, snapshot) of a stage's tasks, whose commits are known to be valid, at these offsets.

    Raises ConfigError: not retained any more.
    """
    found = []
    for partition, wiring in enumerate(all_wirings(job)[job.tasks_of(stage.ordinal)]):
        offset = offsets.get(partition, -1)
        row = next(rows_left(log, wiring.changelog, max(offset, 0), offset + 1), None)
        commit = None if row is None else commit_in(wiring.changelog, row)
        if row is None or commit is None:
            raise ConfigError(
                f"task {wiring.name}: its commit at offset {offset} is no longer retained (setting "
                "changelog_retention_ms): begin again",
                task=wiring.name,
                setting="changelog_retention_ms",
            )
        found.append((partition, snapshot_at(log, wiring, CommittedAt(row.offset, row.append_time_ms, commit))))
    return found


def refuse_other_graph(log: LogReader, wiring: TaskWiring, commit: Commit) -> None:
    """Raise ConfigError for a commit of another graph: of fewer partitions, what is read would be a part of it."""
    if commit.fingerprint not in wiring.fingerprints:
        raise ConfigError(
            f"task {wiring.name}: checkpoint {commit.checkpoint_id} was committed with other stages or another number "
            f"of partitions (its changelog has {log.partitions(wiring.changelog.topic)}): read it with the code of "
            "then; or before grete migrate: read a later one; or something else wrote it: grete doctor looks",
            task=wiring.name,
            checkpoint_id=commit.checkpoint_id,
        )


def _not_retained(task: str, checkpoint_id: int) -> ConfigError:
    return ConfigError(
        f"task {task}: checkpoint {checkpoint_id} is no longer retained (setting changelog_retention_ms): read a "
        "later one, or the newest",
        task=task,
        checkpoint_id=checkpoint_id,
        setting="changelog_retention_ms",
    )


def live(entries: Entries) -> tuple[list[bytes], list[bytes], list[int]]:
    """Return the columns key, value, index of the commit that wrote it, of what is not deleted."""
    kept = [(key, *cell) for key, cell in entries.items() if cell[0] is not None]
    columns = list(zip(*kept, strict=True)) or [(), (), ()]
    return [*columns[0]], [*columns[1]], [*columns[2]]
