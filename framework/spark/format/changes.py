"""Changes by a stage's commits between two changelog positions. Rewritten entries are left out.

A position is a checkpoint of the job, by task the last commit that is included. Reads only, needs no worker.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.core.changelog.changelog_fold import ChangelogFold, Segment
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, OffsetOutOfRange
from grete.logs.partition_reader import rows
from grete.logs.searched import SearchedLog
from grete.ports import LogReader
from grete.protocol.changelog import REWRITTEN, decode_changelog_header, decode_data, resets_of
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commit_search import commit_in, first_commit, first_from
from grete.state.read.checkpoints.commits import all_wirings, newest_commit
from grete.state.read.checkpoints.nearest import AsOf
from grete.state.read.checkpoints.snapshots import id_of_all, snapshots
from grete.stores.overlay.rewrite_slice import BEGUN, cursor_of

SPLIT_MESSAGES = 4_096  # of a changelog: a longer part is read by several processes


class CommitPlace(NamedTuple):
    """The last commit of one task that is included. Offset -1: none is."""

    checkpoint_id: int
    offset: int


NOTHING = CommitPlace(-1, -1)


class ChangePoint(NamedTuple):
    """A checkpoint of the job, and each task of a stage at it; a task that is missing is at its beginning."""

    checkpoint_id: int
    places: Mapping[int, CommitPlace]  # by partition

    def place(self, partition: int) -> CommitPlace:
        """Return the position of a task."""
        return self.places.get(partition, NOTHING)

    def encode(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        tasks = {str(number): place._asdict() for number, place in sorted(self.places.items())}
        return {"format": 1, "checkpoint_id": self.checkpoint_id, "tasks": tasks}


BEGINNING = ChangePoint(-1, {})


def decode_position(stored: Mapping[str, Any]) -> ChangePoint:
    """Return the position that ``ChangePoint.encode`` gave. Raises ConfigError: of a newer build."""
    if stored.get("format") != 1:
        raise ConfigError(f"a position of format {stored.get('format')}, this build reads 1: upgrade before reading")
    return ChangePoint(
        stored["checkpoint_id"], {int(number): CommitPlace(**place) for number, place in stored["tasks"].items()}
    )


class ChangelogRange(NamedTuple):
    """A part of a changelog: the commits behind ``start``, up to ``end``."""

    task: str
    changelog: TopicPartition
    start: CommitPlace
    end: CommitPlace
    fingerprint: int | None  # of the job at the position's start: a bulk write that changes it is a rescale


class Changes(NamedTuple):
    """Changes of one commit: data messages in order, and those of which only the tombstones count."""

    commit: Commit
    offset: int
    messages: tuple[bytes, ...]
    rewritten: frozenset[int]  # indexes in ``messages``


# --- positions --------------------------------------------------------------------------------------------------------


def wirings_of(job: Job, stage: StageGraph) -> list[TaskWiring]:
    """Return the wiring of each task of a stage."""
    return all_wirings(job)[job.tasks_of(stage.ordinal)]


def position_at(log: LogReader, job: Job, stage: StageGraph, asked: AsOf | None, *, aligned: bool) -> ChangePoint:
    """Return the position of a checkpoint or a time; None: the newest that all tasks have, BEGINNING if there is none.

    Raises ConfigError as ``snapshots.snapshots`` does.
    """
    log = SearchedLog.of(log)
    if asked is None and any(newest_commit(log, wiring) is None for wiring in all_wirings(job)):
        return BEGINNING
    found = snapshots(log, job, asked, aligned=aligned)
    own = found[job.tasks_of(stage.ordinal)]
    places = {number: CommitPlace(each.commit.checkpoint_id, each.offset) for number, each in enumerate(own)}
    return ChangePoint(asked if isinstance(asked, int) else id_of_all(found), places)


def earliest(log: LogReader, job: Job, stage: StageGraph, *, aligned: bool) -> ChangePoint:
    """Return the first position behind which the changelogs hold all commits."""
    log = SearchedLog.of(log)
    wirings = wirings_of(job, stage)
    if all(log.bounds(wiring.changelog)[0] == 0 for wiring in wirings):
        return BEGINNING
    firsts = [first_from(log, wiring, 0) for wiring in wirings]
    after = max(at.commit.checkpoint_id for at in firsts if at is not None) - 1
    newest = position_at(log, job, stage, None, aligned=aligned)
    return _next(log, job, stage, after, newest, aligned=aligned)


def later(
    log: LogReader, job: Job, stage: StageGraph, start: ChangePoint, newest: ChangePoint, count: int, *, aligned: bool
) -> ChangePoint:
    """Return the position ``count`` checkpoints behind ``start``, ``newest`` if that is nearer."""
    log = SearchedLog.of(log)
    found = start
    for _ in range(count):
        if found.checkpoint_id >= newest.checkpoint_id:
            return newest
        found = _next(log, job, stage, found.checkpoint_id, newest, aligned=aligned)
    return ChangePoint(
        found.checkpoint_id, {n: max(place, start.place(n), key=_offset) for n, place in found.places.items()}
    )


def _offset(place: CommitPlace) -> int:
    return place.offset


def _next(
    log: LogReader, job: Job, stage: StageGraph, after: int, newest: ChangePoint, *, aligned: bool
) -> ChangePoint:
    """Return the first position whose checkpoint, committed by a task of the stage, is above ``after``."""
    while True:
        found = [first_from(log, wiring, after + 1) for wiring in wirings_of(job, stage)]
        after = min((at.commit.checkpoint_id for at in found if at is not None), default=newest.checkpoint_id)
        if after >= newest.checkpoint_id:
            return newest
        try:
            return position_at(log, job, stage, after, aligned=aligned)
        except ConfigError:  # not by all tasks: the next one, perhaps
            continue


# --- ranges -----------------------------------------------------------------------------------------------------------


def ranges(
    log: LogReader, job: Job, stage: StageGraph, start: ChangePoint, end: ChangePoint
) -> list[tuple[int, ChangelogRange]]:
    """Return (partition, range) of all that was committed from ``start`` to ``end``; a long one is cut at commits.

    Raises ConfigError: the changelog was trimmed behind ``start``, or it is another one.
    """
    log = SearchedLog.of(log)
    found = []
    wirings = wirings_of(job, stage)
    fingerprint = _fingerprint(log, wirings[0], start.place(0))
    for number, wiring in enumerate(wirings):
        at, last = start.place(number), end.place(number)
        first, log_end = log.bounds(wiring.changelog)
        if at.offset >= log_end or last.offset < at.offset:
            raise ConfigError(
                f"{wiring.changelog} ends at offset {log_end}, before that of checkpoint {at.checkpoint_id} "
                f"({at.offset}): this is the log of another job; begin again from a new position",
                partition=wiring.changelog,
                offset=at.offset,
            )
        if first > max(at.offset, 0):
            raise trimmed(wiring.name, wiring.changelog, at)
        for part, next_ in _cut(log, wiring, at, last):
            found.append((number, ChangelogRange(wiring.name, wiring.changelog, part, next_, fingerprint)))
    return found


def trimmed(task: str, changelog: TopicPartition, at: CommitPlace) -> ConfigError:
    """Return the error that says that changes are gone."""
    since = "its beginning" if at == NOTHING else f"checkpoint {at.checkpoint_id}"
    return ConfigError(
        f"task {task}: changes since {since} are no longer retained in {changelog} (setting changelog_retention_ms)",
        task=task,
        partition=changelog,
        checkpoint_id=at.checkpoint_id,
        setting="changelog_retention_ms",
    )


def _fingerprint(log: LogReader, wiring: TaskWiring, at: CommitPlace) -> int | None:
    """Return the fingerprint that the job had at a place, None: it had committed nothing."""
    if at == NOTHING:
        first = first_from(log, wiring, 0)
        return None if first is None else first.commit.fingerprint
    try:
        row = next(rows(log, wiring.changelog, at.offset, at.offset + 1), None)
    except OffsetOutOfRange as error:
        raise trimmed(wiring.name, wiring.changelog, at) from error
    commit = None if row is None else commit_in(wiring.changelog, row)
    return None if commit is None else commit.fingerprint


def _cut(
    log: LogReader, wiring: TaskWiring, start: CommitPlace, end: CommitPlace
) -> Iterator[tuple[CommitPlace, CommitPlace]]:
    last = newest_commit(log, wiring)
    while last is not None and end.offset - start.offset > SPLIT_MESSAGES:
        found = first_commit(log, wiring.changelog, start.offset + SPLIT_MESSAGES, end.offset, last)
        if found is None or found.commit.bulk_write_id is not None:
            break
        yield start, (start := CommitPlace(found.commit.checkpoint_id, found.offset))
    if end.offset > start.offset:
        yield start, end


# --- changes ----------------------------------------------------------------------------------------------------------


def changes(log: LogReader, part: ChangelogRange, store: int) -> Iterator[Changes]:
    """Yield the changes of a store by each commit of a range, oldest first.

    A rescale changes nothing. Raises ConfigError: trimmed meanwhile; a bulk write has replaced the store; a commit of a
    release that does not tell what it has rewritten. Halted: a damaged changelog.
    """
    begin = max(part.start.offset, 0)
    fold = ChangelogFold(part.changelog, begin)
    previous: Commit | None = None
    try:
        for row in rows(log, part.changelog, begin, part.end.offset + 1):
            segment = fold.feed(row.offset, row.value or b"")
            if segment is not None:
                if segment.offset > part.start.offset:
                    yield _changes(part, store, previous, segment)
                previous = segment.commit
    except OffsetOutOfRange as error:
        raise trimmed(part.task, part.changelog, part.start) from error
    if fold.in_doubt is not None:  # the range's end counts, or it would not be one
        segment = fold.settle(fold.in_doubt, counts=True)
        if segment is not None:
            yield _changes(part, store, previous, segment)
    if fold.last is None or fold.last.checkpoint_id != part.end.checkpoint_id:
        raise ConfigError(
            f"task {part.task}: there is no commit of checkpoint {part.end.checkpoint_id} at offset "
            f"{part.end.offset} of {part.changelog}: this is the log of another job",
            task=part.task,
            partition=part.changelog,
            offset=part.end.offset,
        )


def _changes(part: ChangelogRange, store: int, previous: Commit | None, segment: Segment) -> Changes:
    commit, messages = segment.commit, segment.messages
    attempts = [decode_changelog_header(message).attempt for message in messages]
    fingerprint = part.fingerprint if previous is None else previous.fingerprint
    moved = fingerprint not in (None, commit.fingerprint) and any(map(resets_of, messages))
    if moved:  # a rescale: it spreads entries, and each keeps its value
        messages, attempts = tuple(m for m, attempt in zip(messages, attempts, strict=True) if not attempt), []
    resets = [resets_of(message) for message in messages]
    if previous is not None and any(store in reset for reset in resets if reset):
        raise ConfigError(
            f"task {part.task}: checkpoint {commit.checkpoint_id} has replaced the whole store (a backfill, a fork, or "
            "a write of Spark that overwrites): it is no list of changes",
            task=part.task,
            checkpoint_id=commit.checkpoint_id,
        )
    rewritten = frozenset(number for number, reset in enumerate(resets) if reset == REWRITTEN)
    if not rewritten and not any(attempts) and previous is not None and _in_doubt(previous, commit, messages, store):
        raise ConfigError(
            f"task {part.task}: checkpoint {commit.checkpoint_id} was committed by a release that does not tell "
            "rewritten entries from changes",
            task=part.task,
            checkpoint_id=commit.checkpoint_id,
        )
    return Changes(commit, segment.offset, messages, rewritten)


def _in_doubt(previous: Commit, commit: Commit, messages: tuple[bytes, ...], store: int) -> bool:
    """Tell whether rows of a store, without a mark among their messages, may be of the rewrite: its keys are last."""
    low, high = previous.cursor or BEGUN, commit.cursor
    if not messages or low == high:
        return False
    after, until = cursor_of(low), cursor_of(high) if high else None

    def passed(number: int, key: bytes) -> bool:
        return after < (number, key) and (until is None or (number, key) <= until)

    last = decode_data(messages[-1])
    if not last.keys or not passed(last.stores[-1], last.keys[-1]):
        return False
    every = (decode_data(message) for message in messages)
    return any(n == store and passed(n, key) for data in every for n, key in zip(data.stores, data.keys, strict=True))
