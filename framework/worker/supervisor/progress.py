"""Follows the commits and streams of a running job from outside: each look reads only what is new.

On Kafka a look back is a seek and several round trips, one forwards costs nothing until something comes.
"""

from collections import deque

from grete.core.graph.task_topology import TaskWiring
from grete.logs.partition_reader import PartitionFollower
from grete.ports import LogReader
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import frame_count
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import CommittedAt, LatestCommit, end_of


class CommitProgress:
    """Commits that a supervisor checks repeatedly. A partition is watched from the first question about it."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._changelogs: dict[TopicPartition, _Changelog] = {}
        self._streams: dict[TopicPartition, _Stream] = {}

    def last_commit(self, changelog: TopicPartition) -> CommittedAt | None:
        """Return the last valid commit that has come (C2), or None."""
        return self._changelog(changelog).last

    def uncommitted_records(self, wiring: TaskWiring) -> int:
        """Return the number of records sent since the task is watched that its last commit does not cover."""
        changelog = self._changelog(wiring.changelog)
        checkpoint_id = 0 if changelog.last is None else changelog.last.commit.checkpoint_id
        return sum(self._stream(p).above(wiring.producer, changelog.top, checkpoint_id) for p in wiring.outputs)

    def _changelog(self, partition: TopicPartition) -> "_Changelog":
        if partition not in self._changelogs:
            self._changelogs[partition] = _Changelog(self._log, partition)
        self._changelogs[partition].catch_up()
        return self._changelogs[partition]

    def _stream(self, partition: TopicPartition) -> "_Stream":
        if partition not in self._streams:
            self._streams[partition] = _Stream(self._log, partition)
        self._streams[partition].catch_up()
        return self._streams[partition]


class _Changelog:
    """The last valid commit of a changelog, and its highest generation."""

    def __init__(self, log: LogReader, partition: TopicPartition) -> None:
        self._follower = PartitionFollower(log, partition)
        self._latest = LatestCommit(partition)  # may be ahead of the position: nothing changes by reading it twice
        self._latest.found, self._latest.top = end_of(log, partition)

    @property
    def last(self) -> CommittedAt | None:
        """The last valid commit."""
        return self._latest.found

    @property
    def top(self) -> int:
        """The highest generation."""
        return self._latest.top

    def catch_up(self) -> None:
        """Take what has come."""
        for row in self._follower.new():
            self._latest.take(row)


class _Stream:
    """The records in one partition of a stream by producer, of its newest generation and not committed yet."""

    def __init__(self, log: LogReader, partition: TopicPartition) -> None:
        self._follower = PartitionFollower(log, partition)
        # producer → generation, (checkpoint id, records)s
        self._sent: dict[int, tuple[int, deque[tuple[int, int]]]] = {}

    def catch_up(self) -> None:
        """Take what has come."""
        for row in self._follower.new():
            value = row.value or b""
            header = decode_header(value)
            generation, sent = self._sent.get(header.producer, (-1, deque()))
            if header.generation > generation:
                generation, sent = header.generation, deque()
                self._sent[header.producer] = generation, sent
            if header.type is MessageType.FRAME and header.generation == generation:
                sent.append((header.checkpoint_id, frame_count(value)))

    def above(self, producer: int, generation: int, checkpoint_id: int) -> int:
        """Return the records of a producer whose checkpoint id is above the checkpoint that it has committed."""
        known, sent = self._sent.get(producer, (-1, deque()))
        while sent and sent[0][0] <= checkpoint_id:
            sent.popleft()
        return sum(count for _, count in sent) if known == generation else 0
