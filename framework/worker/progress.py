"""Watches the commits and streams of a running job from outside, forwards: what was read is not asked for again.

On Kafka a look back is a seek and several round trips, one forwards costs nothing until something comes.
"""

from collections import deque
from collections.abc import Iterator

from framework.core.task_topology import TaskWiring
from framework.errors import OffsetOutOfRange
from framework.ports import LogReader, LogRow
from framework.state.commits import CommittedAt, Latest, end_of
from protocol.envelope import MessageType, decode_header
from protocol.frames import frame_count
from protocol.ids import TopicPartition

_READ_BYTES = 1 << 20  # at once: some frames


class CommitProgress:
    """What a supervisor asks again and again. Each partition is watched from the first question about it."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._changelogs: dict[TopicPartition, _Changelog] = {}
        self._streams: dict[TopicPartition, _Stream] = {}

    def last_commit(self, changelog: TopicPartition) -> CommittedAt | None:
        """Return the last valid commit that has come (C2), or None."""
        return self._changelog(changelog).last

    def uncommitted_records(self, wiring: TaskWiring) -> int:
        """Return how many records this task has sent since it is watched that its last commit does not cover."""
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


class _Follower:
    """One partition from its end on."""

    def __init__(self, log: LogReader, partition: TopicPartition) -> None:
        self._log, self._partition = log, partition
        self._position = log.bounds(partition)[1]

    def _new(self) -> Iterator[LogRow]:
        while True:
            try:
                rows = self._log.read(self._partition, self._position, _READ_BYTES)
            except OffsetOutOfRange:  # trimmed meanwhile: it is of no interest any more
                self._position = self._log.bounds(self._partition)[0]
                continue
            if not rows:
                return
            self._position = rows[-1].offset + 1
            yield from rows


class _Changelog(_Follower):
    """The last valid commit of a changelog, and its highest generation."""

    def __init__(self, log: LogReader, partition: TopicPartition) -> None:
        super().__init__(log, partition)
        self._latest = Latest()  # may be ahead of the position: nothing changes by reading it twice
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
        for offset, append_time_ms, _, _, value, _ in self._new():
            self._latest.feed(offset, append_time_ms, value or b"")


class _Stream(_Follower):
    """The records in one partition of a stream by producer, of its newest generation and not committed yet."""

    def __init__(self, log: LogReader, partition: TopicPartition) -> None:
        super().__init__(log, partition)
        # producer → generation, (checkpoint id, records)s
        self._sent: dict[int, tuple[int, deque[tuple[int, int]]]] = {}

    def catch_up(self) -> None:
        """Take what has come."""
        for _, _, _, _, value, _ in self._new():
            header = decode_header(value or b"")
            generation, sent = self._sent.get(header.producer, (-1, deque()))
            if header.generation > generation:
                generation, sent = header.generation, deque()
                self._sent[header.producer] = generation, sent
            if header.type is MessageType.FRAME and header.generation == generation:
                sent.append((header.checkpoint_id, frame_count(value or b"")))

    def above(self, producer: int, generation: int, checkpoint_id: int) -> int:
        """Return the records of a producer whose checkpoint id is above the checkpoint that it has committed."""
        known, sent = self._sent.get(producer, (-1, deque()))
        while sent and sent[0][0] <= checkpoint_id:
            sent.popleft()
        return sum(count for _, count in sent) if known == generation else 0
