"""The progress that the tasks of a process announce leaves in one message for each partition (D1)."""

from grete.core.actions import Announce
from grete.execution.engine.joint_progress import HELD_PARTS, NO_TASK, JointProgress
from grete.execution.limits import PACE_INTERVALS_MAX, PACE_INTERVALS_MIN, UNPACED_PARTITIONS_MAX, progress_pace_ms
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.protocol.control import decode_joint_progress
from grete.protocol.ids import TopicPartition

PACE_MS = 20
FIRST, SECOND = TopicPartition("s", 0), TopicPartition("s", 1)


class World:
    """Two partitions, what is announced to them, and a clock."""

    def __init__(self) -> None:
        self.log, self.now_ms = MemoryLog(MemoryLogData(lambda: 0)), 0.0
        self.log.create_topic("s", 2)
        self.owners = set[int]()  # of what the log has acknowledged
        self.joint = JointProgress(self.log, lambda: self.now_ms)

    def announce(self, producer: int, t: int, first: int, second: int) -> None:
        """Announce progress of a task whose next seqs are these."""
        self.joint.hold(Announce(producer, 3, 4, t, {FIRST: first, SECOND: second}), PACE_MS)

    def told(self, partition: TopicPartition) -> list[list[tuple[int, int, int]]]:
        """Return producer, seq and t of each row of each message."""
        self.owners |= {delivery.owner for delivery in self.log.poll()}
        rows = self.log.read(partition, 0, 1 << 20)
        decoded = (decode_joint_progress(row.value or b"") for row in rows)
        return [[(each.header.producer, each.header.seq, each.t) for each in message] for message in decoded]


def test_what_several_tasks_announce_is_one_message_for_each_partition() -> None:
    """It leaves a part of a pace behind the first of them, with the last that each has announced."""
    world = World()
    world.announce(1, 100, 5, 6)
    world.now_ms += PACE_MS / HELD_PARTS / 2
    world.announce(2, 110, 7, 8)
    world.announce(1, 120, 9, 6)
    world.joint.leave()
    assert (world.told(FIRST), world.joint.due_ms) == ([], PACE_MS / HELD_PARTS)
    world.now_ms = PACE_MS / HELD_PARTS
    world.joint.leave()
    assert world.told(FIRST) == [[(1, 9, 120), (2, 7, 110)]]
    assert world.told(SECOND) == [[(1, 6, 120), (2, 8, 110)]]
    assert world.owners == {NO_TASK}


def test_nothing_is_said_twice() -> None:
    """Progress that has left is not held any more."""
    world = World()
    world.announce(1, 100, 5, 6)
    world.now_ms = PACE_MS
    world.joint.leave()
    world.now_ms *= 2
    world.joint.leave()
    assert (len(world.told(FIRST)), world.joint.due_ms) == (1, None)


def test_few_partitions_are_told_at_once_and_many_at_a_pace() -> None:
    """Early outputs of small jobs wait for nothing; the pace of wide ones has a bound."""
    assert [progress_pace_ms(each, 5) for each in (1, UNPACED_PARTITIONS_MAX, UNPACED_PARTITIONS_MAX + 1)] == [
        0,
        0,
        5 * PACE_INTERVALS_MIN,
    ]
    assert [progress_pace_ms(each, 5) for each in (32, 4_096)] == [20, 5 * PACE_INTERVALS_MAX]
