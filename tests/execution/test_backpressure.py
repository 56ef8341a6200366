"""When a source looks how far its consumers are behind (B1)."""

from framework.execution.backpressure import Backpressure
from framework.execution.limits import AGAIN_MS
from framework.logs.memory import MemoryLog, MemoryLogData
from protocol.ids import TopicPartition

STREAMS = (TopicPartition("stream", 0), TopicPartition("stream", 1))


class Counting(MemoryLog):
    """A log that counts the looks."""

    looks = 0

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        self.looks += partition == STREAMS[0]
        return super().bounds(partition)


def logged(messages: int) -> Counting:
    log = Counting(MemoryLogData(lambda: 0))
    log.create_topic("stream", 2)
    for _ in range(messages):
        log.send(0, 1, STREAMS[1], b"x")
    log.poll()
    return log


def test_it_looks_again_when_its_share_of_the_room_is_used_up() -> None:
    """Two producers, 4 of 10 messages there: each may send 3 before it looks, so together they keep to the bound."""
    log = logged(4)
    backpressure = Backpressure(log, STREAMS, 10)
    for _ in range(3):
        assert not backpressure.behind(0)
        backpressure.sent()
    assert log.looks == 1
    assert not backpressure.behind(0)
    assert log.looks == 2


def test_while_they_are_behind_it_looks_every_few_ms() -> None:
    """One message too many: it stops, and goes on when a later look finds that they have caught up."""
    log = logged(11)
    backpressure = Backpressure(log, STREAMS, 10)
    assert backpressure.behind(0)
    log.trim(STREAMS[1], 5)
    assert (backpressure.behind(AGAIN_MS - 1), log.looks) == (True, 1)
    assert (backpressure.behind(AGAIN_MS), log.looks) == (False, 2)
