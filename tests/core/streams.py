"""The logs of a task that is stepped by hand: lists, and producers that append to them as other tasks would.

The job is a → b → c with two partitions each.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.protocol.changelog import ChangelogHeader, ChangelogType, Claim, decode_changelog_header, encode_claim
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.control import encode_marker, encode_rollback_marker, encode_watermark
from grete.protocol.envelope import Header, MessageType, decode_header, encode_header
from grete.protocol.frames import encode_columns
from grete.protocol.ids import RollbackEntry, TopicPartition, producer_id

STREAMS = (Stream("j.a.t.b", 0, 1, 2, "t"), Stream("j.b.o.c", 1, 2, 2, "o"))
JOB = Topology("j", (Stage("a", 0, 2), Stage("b", 1, 2), Stage("c", 2, 2)), STREAMS, {0: ("in",)})
SOURCE, INNER, SINK = (wire(JOB, stage, 0) for stage in range(3))
ALONE = wire(Topology("j", (Stage("a", 0, 2),), (), {0: ("in",)}), 0, 0)  # of a job of one stage
A0, A1 = producer_id(0, 0), producer_id(0, 1)  # the producers that INNER reads
T = TopicPartition("j.a.t.b", 0)  # the partition that INNER reads
OUT = INNER.outputs
IN = TopicPartition("in", 0)


class Appends(Protocol):
    """A log for a Producer to write to."""

    def append(self, partition: TopicPartition, *values: bytes) -> int:
        """Append messages; return the offset of the last."""
        ...


class Log:
    """Partitions as lists of (append time, value); ``start`` moves by trimming; ``now_ms`` is its clock."""

    def __init__(self) -> None:
        self.rows: defaultdict[TopicPartition, list[tuple[int, bytes]]] = defaultdict(list)
        self.start: defaultdict[TopicPartition, int] = defaultdict(int)
        self.now_ms = 1_050

    def append(self, partition: TopicPartition, *values: bytes) -> int:
        """Append messages; return the offset of the last."""
        self.rows[partition] += [(self.now_ms, value) for value in values]
        return len(self.rows[partition]) - 1

    def claim(self, task: TaskWiring, generation: int) -> int:
        """Append the claim of another process."""
        header = ChangelogHeader(ChangelogType.CLAIM, generation, 0, 0)
        return self.append(task.changelog, encode_claim(header, Claim(b"another process!", "elsewhere", 1, 0)))

    def commits(self, task: TaskWiring) -> list[Commit]:
        """Return all commits of the task's changelog that are still there."""
        rows = self.rows[task.changelog][self.start[task.changelog] :]
        return [decode_commit(v) for _, v in rows if decode_changelog_header(v).type is ChangelogType.COMMIT]

    def headers(self, partition: TopicPartition) -> list[Header]:
        """Return the headers of all messages of a stream's partition."""
        return [decode_header(value) for _, value in self.rows[partition]]


class Producer:
    """Another task as a producer: incarnations, records, markers, numbered as the protocol asks."""

    def __init__(
        self, log: Appends, producer: int, *partitions: TopicPartition, fingerprint: int = JOB.fingerprint()
    ) -> None:
        self.log = log
        self.producer = producer
        self.partitions = partitions or (T,)
        self.fingerprint = fingerprint
        self.generation = 0
        self.rollback_history: tuple[RollbackEntry, ...] = ()
        self.checkpoint_ids: dict[TopicPartition, list[int]] = {partition: [] for partition in self.partitions}

    def rollback_marker(self, checkpoint_id: int, *partitions: TopicPartition, generation: int | None = None) -> None:
        """Become a new incarnation that went back to ``checkpoint_id``.

        Announce that in these partitions, by default in all.
        """
        self.generation = self.generation + 1 if generation is None else generation
        self.rollback_history = (*self.rollback_history, RollbackEntry(self.generation, checkpoint_id))
        for partition, checkpoint_ids in self.checkpoint_ids.items():
            self.checkpoint_ids[partition] = [each for each in checkpoint_ids if each <= checkpoint_id]
        self.announce(*partitions or self.partitions)

    def announce(self, *partitions: TopicPartition) -> None:
        """Append the rollback marker of this incarnation."""
        generation, checkpoint_id = self.rollback_history[-1]
        for partition in partitions:
            seq = len(self.checkpoint_ids[partition]) + 1
            value = encode_rollback_marker(
                self.producer, generation, checkpoint_id, seq, self.fingerprint, self.rollback_history
            )
            self.log.append(partition, value)

    def send(self, open_checkpoint: int, *names: str, to: TopicPartition | None = None) -> int:
        """Append one frame; return its offset."""
        partition = to or self.partitions[0]
        value = frame(self.producer, self.generation, open_checkpoint, len(self.checkpoint_ids[partition]) + 1, *names)
        self.checkpoint_ids[partition] += [open_checkpoint] * len(names)
        return self.log.append(partition, value)

    def tell(self, open_checkpoint: int, watermark: int, *, idle: bool = False, seq: int | None = None) -> int:
        """Append a watermark (by default behind all that was sent); return its offset."""
        partition = self.partitions[0]
        seq = len(self.checkpoint_ids[partition]) + 1 if seq is None else seq
        value = encode_watermark(self.producer, self.generation, open_checkpoint, seq, idle, (watermark,))
        return self.log.append(partition, value)

    def mark(self, checkpoint_id: int, *partitions: TopicPartition, at_end: bool = False) -> None:
        """Append a marker (no partition given: to all)."""
        for partition in partitions or self.partitions:
            seq = 1 + sum(each <= checkpoint_id for each in self.checkpoint_ids[partition])
            self.log.append(partition, encode_marker(self.producer, self.generation, checkpoint_id, seq, at_end))


def frame(producer: int, generation: int, open_checkpoint: int, seq: int, *names: str) -> bytes:
    """Return a frame whose records are these names."""
    header = encode_header(Header(MessageType.FRAME, producer, generation, open_checkpoint, seq))
    return header + encode_columns([None] * len(names), encoded(names), [0] * len(names))


def encoded(names: Sequence[str]) -> list[bytes]:
    """Return the names as bytes."""
    return [name.encode() for name in names]


def decoded(cells: Sequence[bytes | None]) -> list[str]:
    """Return names from bytes."""
    return [(cell or b"").decode() for cell in cells]
