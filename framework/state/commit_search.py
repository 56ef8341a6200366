"""Finds commits of one task by their checkpoint, with a few reads of its changelog: they are sorted by it."""

from framework.core.task_topology import TaskWiring
from framework.errors import ConfigError, Halted
from framework.execution.changelog_writer import find_outcome
from framework.logs.partition_reader import rows
from framework.ports import LogReader, LogRow
from framework.state.commits import CommittedAt
from protocol.changelog import ChangelogType, decode_changelog_header, decode_outcome
from protocol.commit import Commit, decode_commit
from protocol.errors import DecodeError
from protocol.ids import TopicPartition


def commit_in(changelog: TopicPartition, row: LogRow) -> Commit | None:
    """Return the commit in a row, None if it is another message. Raises Halted: damaged, or of a newer build."""
    try:
        is_commit = decode_changelog_header(row.value or b"").type is ChangelogType.COMMIT
        return decode_commit(row.value or b"") if is_commit else None
    except DecodeError as error:
        raise Halted(
            f"{changelog} offset {row.offset}: {error}; the changelog is damaged",
            partition=changelog,
            offset=row.offset,
        ) from error


def _first_commit(log: LogReader, wiring: TaskWiring, begin: int, end: int) -> CommittedAt | None:
    """Return the first commit message at or after ``begin``, valid or not, but of bulk writes only those that count."""
    for row in rows(log, wiring.changelog, begin, end):
        commit = commit_in(wiring.changelog, row)
        if commit is not None and (commit.bulk_write_id is None or _counts(log, wiring, row.offset, commit)):
            return CommittedAt(row.offset, row.append_time_ms, commit)
    return None


def _counts(log: LogReader, wiring: TaskWiring, offset: int, commit: Commit) -> bool:
    """Tell whether a bulk write's commit counts: by its outcome, here or at task (0, 0), or by the next commit."""
    top = commit.generation
    for row in rows(log, wiring.changelog, offset + 1, log.bounds(wiring.changelog)[1]):
        following, message = commit_in(wiring.changelog, row), row.value or b""
        header = decode_changelog_header(message)
        if header.generation < top:
            continue  # rolled back (C2): of a process that had been replaced
        top = header.generation
        # else a repeat of an at-least-once log
        if following is not None and following.bulk_write_id != commit.bulk_write_id:
            return following.previous == commit.checkpoint_id
        if header.type is ChangelogType.OUTCOME:
            outcome = decode_outcome(message)
            if outcome.bulk_write_id == commit.bulk_write_id:
                return outcome.counts
    return bool(find_outcome(log, wiring.outcome_changelog, commit.bulk_write_id or ""))


def last_at_most(log: LogReader, wiring: TaskWiring, checkpoint_id: int | None) -> CommittedAt | None:
    """Return the last commit whose checkpoint is not above ``checkpoint_id`` (None: the last of all), by bisection."""
    low, end = log.bounds(wiring.changelog)
    high, best = end, None
    while low < high:
        middle = (low + high) // 2
        found = _first_commit(log, wiring, middle, high)
        if found is None or (checkpoint_id is not None and found.commit.checkpoint_id > checkpoint_id):
            high = middle
        else:
            best, low = found, found.offset + 1
    return best


def at_most(log: LogReader, wiring: TaskWiring, checkpoint_id: int | None) -> CommittedAt:
    """Return what ``last_at_most`` does. Raises ConfigError if there is none."""
    found = last_at_most(log, wiring, checkpoint_id)
    if found is None:
        raise ConfigError(
            f"task {wiring.name} has no checkpoint up to {checkpoint_id}: it began later, or it is not retained",
            task=wiring.name,
            checkpoint_id=checkpoint_id,
        )
    return found


def first_from(log: LogReader, wiring: TaskWiring, checkpoint_id: int) -> CommittedAt | None:
    """Return the first commit whose checkpoint is not below ``checkpoint_id``."""
    before = last_at_most(log, wiring, checkpoint_id - 1)
    start, end = log.bounds(wiring.changelog)
    return _first_commit(log, wiring, start if before is None else before.offset + 1, end)


def first_at_least(log: LogReader, wiring: TaskWiring, checkpoint_id: int) -> CommittedAt:
    """Return what ``first_from`` does, of a source. Raises ConfigError if there is none."""
    found = first_from(log, wiring, checkpoint_id)
    if found is None:
        raise ConfigError(
            f"task {wiring.name}, a source, has not committed checkpoint {checkpoint_id} or a later one yet",
            task=wiring.name,
            checkpoint_id=checkpoint_id,
        )
    return found
