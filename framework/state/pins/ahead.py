"""Finds deterministic tasks whose outputs are ahead of their last commit: a start makes these again, unchanged."""

from collections.abc import Iterator

from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import Topology
from grete.logs.partition_reader import rows_left
from grete.ports import LogReader
from grete.protocol.changelog import InputDecision
from grete.state.read.checkpoints.commits import CommittedAt, last_commit, tasks_behind


def ahead(log: LogReader, pinned: Topology) -> Iterator[TaskWiring]:
    """Yield the tasks of a graph that may have made outputs visible behind their last commit.

    A task that takes in records says so in its changelog. One that reads streams need not, and what it sends to a topic
    is seen at once: it may be ahead where a stream has more for it than its commit has.
    """
    stages = [(ordinal, pinned.stages[ordinal].partitions) for ordinal in sorted(pinned.deterministic)]
    wirings = [wire(pinned, ordinal, number) for ordinal, count in stages for number in range(count)]
    tasks = [
        (wiring, last_commit(log, wiring.changelog))
        for wiring in wirings
        if log.partitions(wiring.changelog.topic) is not None
    ]
    commits = [(wiring, None if last is None else last.commit) for wiring, last in tasks]
    found = {behind.wiring.producer for behind in tasks_behind(commits)}
    found |= {wiring.producer for wiring, last in tasks if _is_ahead(log, wiring, last)}
    while more := [w for w, _ in tasks if w.producer not in found and any(p in found for p, _ in w.channels)]:
        found |= {wiring.producer for wiring in more}
    yield from (wiring for wiring, _ in tasks if wiring.producer in found)


def _is_ahead(log: LogReader, wiring: TaskWiring, last: CommittedAt | None) -> bool:
    begin, end = log.bounds(wiring.changelog)
    fold = ChangelogFold(wiring.changelog, begin if last is None else last.offset)
    for row in rows_left(log, wiring.changelog, fold.start, end):
        fold.feed(row.offset, row.value or b"")
    log.leave(wiring.changelog)
    return bool(fold.since.released) or any(isinstance(each, InputDecision) for each in fold.since.decisions)
