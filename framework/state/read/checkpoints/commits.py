"""Reads the commits of a job from outside: the last ones, the processed inputs, the records that a kill rolled back."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from grete.api.jobs.job import Job
from grete.core.changelog.changelog_fold import is_rolled_back
from grete.core.changelog.damage import check_generation
from grete.core.changelog.damage import message as decoding
from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import Topology
from grete.errors import Halted
from grete.execution.changelog.changelog_writer import find_outcome
from grete.logs.partition_reader import rows_left
from grete.ports import LogReader, LogRow
from grete.protocol.changelog import ChangelogType, decode_changelog_header, decode_outcome
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import frame_count
from grete.protocol.ids import TopicPartition

_WINDOW = 8  # messages read at first from the end of a partition; grows until what is searched is found
_TOGETHER = 64  # changelogs whose ends are fetched at a time: what is fetched waits in memory
_BETWEEN = MessageType.MARKER, MessageType.WATERMARK


class CommittedAt(NamedTuple):
    """A commit and its offset in the changelog."""

    offset: int
    append_time_ms: int
    commit: Commit

    def counts_for(self, later: Commit) -> bool:
        """Tell whether a commit of the same task behind this one goes on from it: else it was rolled back (R3)."""
        own = self.commit
        return own.generation <= later.generation and not is_rolled_back(
            later.rollback_history, own.generation, own.checkpoint_id
        )


class LatestCommit:
    """The last valid commit of the messages fed (C2), a bulk write's after its outcome; their highest generation."""

    def __init__(self, changelog: TopicPartition) -> None:
        self._changelog = changelog  # for errors
        self.found: CommittedAt | None = None
        self.top = 0
        self.count = 0
        self._in_doubt: CommittedAt | None = None  # of a bulk write without an outcome
        self._settled: str | None = None  # the last bulk write with an outcome: a log at least once repeats its commit

    @property
    def in_doubt(self) -> CommittedAt | None:
        """The commit of a bulk write behind the last one, if no outcome on it was among the messages."""
        return self._in_doubt

    def take(self, row: LogRow, commit: Commit | None = None) -> None:
        """Take the next message; ``commit``: what it holds, if that was decoded. Raises Halted: it is damaged."""
        with decoding(self._changelog, row.offset):
            self._take(row, row.value or b"", commit)

    def _take(self, row: LogRow, value: bytes, commit: Commit | None) -> None:
        header = decode_changelog_header(value)
        if header.generation < self.top:
            return
        self.top = header.generation
        if header.type is ChangelogType.COMMIT:
            at = CommittedAt(row.offset, row.append_time_ms, decode_commit(value) if commit is None else commit)
            if self.found is not None and at.commit.checkpoint_id <= self.found.commit.checkpoint_id:
                return  # a repeat of an at-least-once log: checkpoints rise from one valid commit to the next
            if self._in_doubt is not None and at.commit.previous == self._in_doubt.commit.checkpoint_id:
                self._count(self._in_doubt)  # this one builds on the bulk write's commit: its process knew the outcome
            if at.commit.bulk_write_id is None:
                self._count(at)
            elif at.commit.bulk_write_id != self._settled and (
                self._in_doubt is None or self._in_doubt.commit.bulk_write_id != at.commit.bulk_write_id
            ):
                self._in_doubt = at
        elif header.type is ChangelogType.OUTCOME and self._in_doubt is not None:
            bulk_write_id, counts = decode_outcome(value)
            if bulk_write_id == self._in_doubt.commit.bulk_write_id:
                if counts:
                    self._count(self._in_doubt)
                self._in_doubt, self._settled = None, bulk_write_id

    def begin_at(self, at: CommittedAt) -> None:
        """Take a commit that is known to be valid: the message to begin with."""
        self.found, self.top = at, at.commit.generation

    def _count(self, at: CommittedAt) -> None:
        self.found, self._in_doubt = at, None
        self.count += 1


LastCommit = Callable[[TopicPartition], CommittedAt | None]  # of a changelog: how to find it, if not by a look back


def all_wirings(job: Job) -> list[TaskWiring]:
    """Return the wiring of every task of the job, stage by stage."""
    return list(_wirings(job.topology()))


@lru_cache(maxsize=64)  # asked for at each look at how far a job has come, and the same each time
def _wirings(topology: Topology) -> tuple[TaskWiring, ...]:
    return tuple(
        wire(topology, stage.ordinal, partition) for stage in topology.stages for partition in range(stage.partitions)
    )


def ends_of(log: LogReader, changelogs: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, tuple[int, int]]]:
    """Yield changelogs with their bounds, to look for the last commit of each: their ends are fetched together.

    So a look at many waits as long as one at a single one. Then they are left, and no longer fetched.
    """
    left = iter(dict.fromkeys(changelogs))
    while some := list(islice(left, _TOGETHER)):
        bounds = log.all_bounds(some)
        try:
            log.expect({each: (max(start, end - _WINDOW), end) for each, (start, end) in bounds.items() if start < end})
            yield from bounds.items()
        finally:
            for changelog in some:
                log.leave(changelog)


def last_commit(log: LogReader, changelog: TopicPartition, bounds: tuple[int, int] | None = None) -> CommittedAt | None:
    """Return the last valid commit (C2), judged from a window at the end of the changelog; None if there is none.

    ``bounds``: of the changelog, where they are known.
    """
    return latest_of(log, changelog, bounds).found


class TaskBehind(NamedTuple):
    """A task has committed fewer records of a partition than their producer has committed as sent."""

    wiring: TaskWiring
    partition: TopicPartition
    taken: int
    sent: int


def tasks_behind(tasks: Sequence[tuple[TaskWiring, Commit | None]]) -> Iterator[TaskBehind]:
    """Yield the tasks whose last commits lack records of streams, and of which. ``tasks``: with their producers."""
    sent = {
        (wiring.producer, TopicPartition(o.topic, o.partition)): o.next_seq - 1
        for wiring, last in tasks
        for o in (() if last is None else last.outputs)
    }
    for wiring, last in tasks:
        taken = {
            (c.producer, TopicPartition(i.topic, i.partition)): c.seq
            for i in (() if last is None else last.inputs)
            for c in i.channels
        }
        for channel in wiring.channels:
            if (had := taken.get(channel, 0)) != (made := sent.get(channel, 0)):
                yield TaskBehind(wiring, channel[1], had, made)


def end_of(log: LogReader, changelog: TopicPartition) -> tuple[CommittedAt | None, int]:
    """Return the last valid commit of a changelog, and its highest generation."""
    latest = latest_of(log, changelog)
    return latest.found, latest.top


def latest_of(log: LogReader, changelog: TopicPartition, bounds: tuple[int, int] | None = None) -> LatestCommit:
    """Return the fold of a changelog's end, as far back as the commit before the last valid one.

    A message tells its validity only to a reader that has seen what is between it and a valid commit (C2).
    """
    window = _WINDOW
    while True:
        start, end = log.bounds(changelog) if bounds is None else bounds
        begin, bounds = max(start, end - window), None
        messages = list(rows_left(log, changelog, begin, end))
        latest, commits = LatestCommit(changelog), dict[int, CommittedAt]()
        if begin > start:
            commits = _commits_of(changelog, messages)
            proven = _first_proven(list(commits.values()))
            if proven is None:
                window *= 8
                continue
            latest.begin_at(proven)
            messages = [message for message in messages if message.offset > proven.offset]
        for message in messages:
            at = commits.get(message.offset)
            latest.take(message, None if at is None else at.commit)
        return latest


def _commits_of(changelog: TopicPartition, messages: Sequence[LogRow]) -> dict[int, CommittedAt]:
    """Return the commits among these messages by offset. One of a wide job takes a millisecond to decode: once."""
    found: dict[int, CommittedAt] = {}
    for row in messages:
        with decoding(changelog, row.offset):
            if decode_changelog_header(row.value or b"").type is ChangelogType.COMMIT:
                found[row.offset] = CommittedAt(row.offset, row.append_time_ms, decode_commit(row.value or b""))
    return found


def _first_proven(commits: Sequence[CommittedAt]) -> CommittedAt | None:
    """Return the first commit that a later one of these, valid or not, says it followed.

    A process commits only behind a commit that it has found valid (C1, C3). Of two commits of one checkpoint its
    rollback history tells which.
    """
    for place, at in enumerate(commits):
        for later in commits[place + 1 :]:
            if later.commit.previous == at.commit.checkpoint_id and at.counts_for(later.commit):
                return at
    return None


def newest_commit(log: LogReader, wiring: TaskWiring, bounds: tuple[int, int] | None = None) -> CommittedAt | None:
    """Return the last valid commit of a task; that of a bulk write counts if its outcome is known by now.

    ``bounds``: of its changelog, where they are known. Raises Halted: the changelog is damaged, or of a newer build.
    """
    return _settled(log, wiring, latest_of(log, wiring.changelog, bounds))


def _settled(log: LogReader, wiring: TaskWiring, latest: LatestCommit) -> CommittedAt | None:
    in_doubt = latest.in_doubt
    if in_doubt is not None and find_outcome(log, wiring.outcome_changelog, in_doubt.commit.bulk_write_id or ""):
        return in_doubt
    return latest.found


def newest_commits(log: LogReader, tasks: Iterable[TaskWiring]) -> Iterator[tuple[TaskWiring, CommittedAt | Halted]]:
    """Yield the tasks that have committed, each with its last commit, or with the halt that its changelog causes."""
    wirings = {wiring.changelog: wiring for wiring in tasks}
    counts = {topic: log.partitions(topic) or 0 for topic in {changelog.topic for changelog in wirings}}
    there = (changelog for changelog in wirings if changelog.partition < counts[changelog.topic])
    for changelog, bounds in ends_of(log, there):
        try:
            latest = latest_of(log, changelog, bounds)
            check_generation(changelog, latest.top + 1)  # that of a start
            found: CommittedAt | Halted | None = _settled(log, wirings[changelog], latest)
        except Halted as error:
            found = error
        if found is not None:
            yield wirings[changelog], found


def count_commits(log: LogReader, changelog: TopicPartition) -> int:
    """Return the number of valid commits (C2) in what is left of a changelog."""
    latest = LatestCommit(changelog)
    for message in rows_left(log, changelog, *log.bounds(changelog)):
        latest.take(message)
    return latest.count


def external_ends(log: LogReader, job: Job) -> dict[TopicPartition, int]:
    """Return the present end of each external input."""
    external = (partition for wiring in all_wirings(job) for partition in wiring.external)
    return {partition: end for partition, (_, end) in log.all_bounds(external).items()}


def readable_ends(
    log: LogReader, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return ends without trailing offsets that hold no record behind a position: Kafka's transactions leave some (S1).

    It costs a look at each partition that goes on behind its position.
    """
    found = dict(ends)
    starts = {each: start for each, (start, _) in log.all_bounds(each for each in ends if each in positions).items()}
    behind = {each: max(positions[each], start) for each, start in starts.items()}
    log.expect({each: (at, ends[each]) for each, at in behind.items() if at < ends[each]})
    for partition, position in behind.items():
        if position < ends[partition]:
            if not (log.read(partition, position, 1) or log.bounds(partition)[1] > position):
                found[partition] = position
            log.leave(partition)
    return found


def uncommitted_records(log: LogReader, wiring: TaskWiring) -> int:
    """Return the number of the task's records in its streams beyond its last commit: a kill rolls them back."""
    last, generation = end_of(log, wiring.changelog)
    checkpoint_id = 0 if last is None else last.commit.checkpoint_id
    return sum(
        _belonging_above(log, partition, wiring.producer, generation, checkpoint_id) for partition in wiring.outputs
    )


def _belonging_above(
    log: LogReader, partition: TopicPartition, producer: int, generation: int, checkpoint_id: int
) -> int:
    """Count records of one generation in a channel whose checkpoint id is above ``checkpoint_id``.

    From the end backwards: checkpoint ids do not fall in a channel, and a generation begins with its rollback marker
    (R2). Records that earlier generations left there were rolled back before.
    """
    start, end = log.bounds(partition)
    window = _WINDOW
    while True:
        begin = max(start, end - window)
        complete, count = begin == start, 0
        for row in rows_left(log, partition, begin, end):
            header = decode_header(row.value or b"")
            if (header.producer, header.generation) != (producer, generation):
                continue
            if header.type is MessageType.FRAME and header.checkpoint_id > checkpoint_id:
                count += frame_count(row.value or b"")
            elif header.type not in _BETWEEN:  # frames of V + 1 may come before marker V (A8)
                complete = True
        if complete:
            return count
        window *= 8
