"""A restarted task reads its outputs from a place that moves on with the partition, also if others write there (D5)."""

from grete.execution.deterministic.output_recovery import OutputRecovery
from grete.execution.limits import SLOW_LOOK_MS
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.stores.memory import MemoryDisk
from tests.execution.deterministic.test_processor import LogicalRig

OUTSIDE = [TopicPartition(topic, partition) for topic in ("out", "letters") for partition in range(2)]
EACH = 5


def others_write(log: MemoryLog) -> None:
    """Append what is not this task's to each partition outside."""
    log.produce(0, 1, [ExternalRecord(partition, None, b"x", 0) for partition in OUTSIDE for _ in range(EACH)])
    log.poll()


def test_places_move_on_where_others_write() -> None:
    """One in turn, once a second; the state keeps them, so that a restart does not read all that others ever wrote."""
    disk, log = MemoryDisk(), MemoryLog(MemoryLogData(lambda: 0))
    for topic in ("out", "letters"):
        log.create_topic(topic, 2, plain=True)
    others_write(log)
    rig = LogicalRig(1, disk)
    back = OutputRecovery(log, 1 << 20, rig.processor.logical)
    back.begin(None)
    assert rig.processor.logical.places == dict.fromkeys(OUTSIDE, EACH)
    others_write(log)
    for moved in range(1, len(OUTSIDE) + 1):
        back.look(moved * SLOW_LOOK_MS)
        back.look(moved * SLOW_LOOK_MS + SLOW_LOOK_MS - 1)
        assert list(rig.processor.logical.places.values()).count(2 * EACH) == moved
    rig.commit()
    assert LogicalRig(1, disk).processor.logical.places == dict.fromkeys(OUTSIDE, 2 * EACH)
