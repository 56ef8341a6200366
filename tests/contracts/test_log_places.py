"""What every log must tell of where plain records stand, and what it may forget (framework.ports.Log)."""

from framework.ports import ExternalRecord, Log
from protocol.ids import TopicPartition

A0, MiB = TopicPartition("a", 0), 1 << 20


def test_a_delivery_tells_where_plain_records_end(log: Log) -> None:
    """For each partition that they went to, the offset behind the last one: who made them can find them again (D5)."""
    log.create_topic("wide", 2, plain=True)
    places = [TopicPartition("wide", number) for number in (0, 1, 0)]
    log.produce(0, 1, [ExternalRecord(place, None, b"x", 1) for place in places])
    (first,) = log.poll()
    assert dict(first.ends) == {places[0]: 2, places[1]: 1}
    log.produce(0, 2, [ExternalRecord(places[0], None, b"y", 1)])
    (second,) = log.poll()
    assert dict(second.ends) == {places[0]: 3}


def test_a_partition_that_was_left_is_read_on(log: Log) -> None:
    """Leaving it loses nothing: what came meanwhile is read by the next read, from any offset."""
    log.leave(A0)
    for token, value in enumerate((b"one", b"two", b"three")):
        log.send(0, token, A0, value)
    log.poll()
    assert [row.value for row in log.read(A0, 0, 1)] == [b"one"]
    log.leave(A0)
    log.send(0, 3, A0, b"four")
    log.poll()
    assert log.bounds(A0) == (0, 4)
    assert [row.value for row in log.read(A0, 1, MiB)] == [b"two", b"three", b"four"]
