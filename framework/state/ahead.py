"""Tells which deterministic tasks are ahead of their last commit: what they made since is made again, the same."""

from collections.abc import Iterator

from grete.core.changelog_fold import ChangelogFold
from grete.core.task_topology import TaskWiring, wire
from grete.core.topology import Topology
from grete.logs.partition_reader import rows_left
from grete.ports import LogReader
from grete.protocol.changelog import InputDecision
from grete.state.commits import last_commit


def ahead(log: LogReader, pinned: Topology) -> Iterator[TaskWiring]:
    """Yield the tasks of a graph that have taken in records, or made outputs visible, behind their last commit."""
    for ordinal in sorted(pinned.deterministic):
        for number in range(pinned.stages[ordinal].partitions):
            wiring = wire(pinned, ordinal, number)
            if log.partitions(wiring.changelog.topic) is not None and _is_ahead(log, wiring):
                yield wiring


def _is_ahead(log: LogReader, wiring: TaskWiring) -> bool:
    last = last_commit(log, wiring.changelog)
    begin, end = log.bounds(wiring.changelog)
    fold = ChangelogFold(wiring.changelog, begin if last is None else last.offset)
    for row in rows_left(log, wiring.changelog, fold.start, end):
        fold.feed(row.offset, row.value or b"")
    log.leave(wiring.changelog)
    return bool(fold.released) or any(isinstance(each, InputDecision) for each in fold.decisions)
