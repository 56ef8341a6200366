"""Finds commits of one task by their checkpoint, with a few reads of its changelog: they are sorted by it."""

from grete.core.changelog.damage import message
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError
from grete.logs.partition_reader import rows
from grete.ports import LogReader, LogRow
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import CommittedAt, newest_commit


def commit_in(changelog: TopicPartition, row: LogRow) -> Commit | None:
    """Return the commit in a row, None if it is another message. Raises Halted: damaged, or of a newer build."""
    with message(changelog, row.offset):
        is_commit = decode_changelog_header(row.value or b"").type is ChangelogType.COMMIT
        return decode_commit(row.value or b"") if is_commit else None


def first_commit(
    log: LogReader, changelog: TopicPartition, begin: int, end: int, last: CommittedAt
) -> CommittedAt | None:
    """Return the first valid commit with ``begin`` <= offset < ``end``. ``last``, the last one of all, tells (R3)."""
    for row in rows(log, changelog, begin, end):
        commit = commit_in(changelog, row)
        at = None if commit is None else CommittedAt(row.offset, row.append_time_ms, commit)
        if at is not None and at.counts_for(last.commit):
            return at
    return None


def last_at_most(log: LogReader, wiring: TaskWiring, checkpoint_id: int | None) -> CommittedAt | None:
    """Return the last commit whose checkpoint is not above ``checkpoint_id`` (None: the last of all), by bisection."""
    last = newest_commit(log, wiring)
    if last is None or checkpoint_id is None or last.commit.checkpoint_id <= checkpoint_id:
        return last
    low, high, best = log.bounds(wiring.changelog)[0], last.offset, None
    while low < high:
        middle = (low + high) // 2
        found = first_commit(log, wiring.changelog, middle, high, last)
        if found is None or found.commit.checkpoint_id > checkpoint_id:
            high = middle
        else:
            best, low = found, found.offset + 1
    return best


def at_most(log: LogReader, wiring: TaskWiring, checkpoint_id: int | None) -> CommittedAt:
    """Return the commit that ``last_at_most`` finds. Raises ConfigError if there is none."""
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
    before, last = last_at_most(log, wiring, checkpoint_id - 1), newest_commit(log, wiring)
    if last is None:
        return None
    begin = log.bounds(wiring.changelog)[0] if before is None else before.offset + 1
    return first_commit(log, wiring.changelog, begin, last.offset + 1, last)


def first_at_least(log: LogReader, wiring: TaskWiring, checkpoint_id: int) -> CommittedAt:
    """Return the commit that ``first_from`` finds, of a source. Raises ConfigError if there is none."""
    found = first_from(log, wiring, checkpoint_id)
    if found is None:
        raise ConfigError(
            f"task {wiring.name}, a source, has not committed checkpoint {checkpoint_id} or a later one yet",
            task=wiring.name,
            checkpoint_id=checkpoint_id,
        )
    return found
