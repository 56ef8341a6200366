"""The history of a deterministic task in its changelog: commits, and the input decisions between them (D2)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from grete.core.changelog.changelog_fold import ChangelogFold
from grete.logs.partition_reader import rows_left
from grete.ports import LogReader, LogRow
from grete.protocol.changelog import ChangelogType, InputDecision, decode_changelog_header, decode_input_decision
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import CallsNote, IdleNote, decode_note


@dataclass
class RecordedTask:
    """The history in one changelog. ``commits``: those with the whole state known, and all later ones in the log."""

    commits: list[Commit] = field(default_factory=list)
    decisions: list[InputDecision | IdleNote] = field(default_factory=list)
    calls: list[CallsNote] = field(default_factory=list)


def rows_of(log: LogReader, partition: TopicPartition) -> Iterator[LogRow]:
    """Yield the rows of a partition up to its present end."""
    return rows_left(log, partition, *log.bounds(partition))


def recorded_task(log: LogReader, changelog: TopicPartition) -> RecordedTask:
    """Read a whole changelog (C2)."""
    return recorded_between(log, changelog, *log.bounds(changelog))


def recorded_between(log: LogReader, changelog: TopicPartition, begin: int, end: int) -> RecordedTask:
    """Read a part of a changelog, from its start or a valid commit on; then ``commits`` may lack some."""
    recorded, fold = RecordedTask(), ChangelogFold(changelog, begin)
    taken = 0 if begin == 0 else None  # records, up to the last commit; None: not known
    since = 0  # decisions up to there
    for row in rows_left(log, changelog, begin, end):
        value = row.value or b""
        invalid = fold.invalid_messages
        closed = fold.feed(row.offset, value)
        if closed is not None and fold.complete:
            if closed.commit.bulk_write_id is not None:  # state from outside: nothing of before leads to it
                recorded.commits.clear()
            recorded.commits.append(closed.commit)
        if closed is not None and closed.commit.deterministic is not None:
            position = closed.commit.deterministic.position
            if taken is not None and closed.commit.bulk_write_id is None:
                _cut(recorded.decisions, since, position - taken)
            taken, since = position, len(recorded.decisions)
        kind = decode_changelog_header(value).type
        if kind in (ChangelogType.INPUT_DECISION, ChangelogType.NOTE) and fold.invalid_messages == invalid:
            decision = decode_note(value) if kind is ChangelogType.NOTE else decode_input_decision(value)
            if isinstance(decision, CallsNote):
                recorded.calls.append(decision)
            elif not recorded.decisions or decision.first_t > recorded.decisions[-1].last_t:  # else a repeat
                recorded.decisions.append(decision)
    return recorded


def _cut(decisions: list[InputDecision | IdleNote], since: int, records: int) -> None:
    """Let the last decision end where a commit has ended it: behind as many records since the commit before (E10).

    When it has ended, in logical time, stays: what was told of event time goes by it.
    """
    lost = sum(each.records for each in decisions[since:] if isinstance(each, InputDecision)) - records
    if lost > 0 and isinstance(decision := decisions[-1], InputDecision):
        decisions[-1] = decision._replace(records=decision.records - lost, rows=None)
