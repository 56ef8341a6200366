"""Kafka's own behaviour: seeks, transactions of others, topic settings, and delays of visibility."""

import os
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from grete.errors import Halted, OffsetOutOfRange, TransientError
from grete.logs.kafka import KafkaLog
from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.read import consumer
from grete.logs.kafka.write.producer import KafkaWriter
from grete.logs.patience import Patience
from grete.ports import Delivery, ExternalRecord, LogRow
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from tests.support.kafka_topics import create

pytestmark = pytest.mark.kafka
Connect = Callable[..., KafkaLog]
MiB = 1 << 20


@pytest.fixture
def connect(kafka_broker: Broker) -> Iterator[Connect]:
    """Opens connections, which are closed at the end."""
    opened: list[KafkaLog] = []

    def connect(**options: str | int) -> KafkaLog:
        config = {name.replace("_", "."): each for name, each in options.items()}
        opened.append(KafkaLog(kafka_broker.bootstrap, config))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"t{os.urandom(6).hex()}"


def make(kafka_broker: Broker, topic: str, **settings: str) -> None:
    """Make a topic of one partition as somebody else would."""
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    named = {name.replace("_", "."): value for name, value in settings.items()}
    create(client, NewTopic(topic, 1, config=named))


def settle(log: KafkaLog, count: int) -> list[Delivery]:
    """Return that many deliveries."""
    found = log.poll()
    while len(found) < count:
        log.wait(10_000)
        found += log.poll()
    return found


def read_to(log: KafkaLog, partition: TopicPartition, offset: int, end: int, max_bytes: int = MiB) -> list[LogRow]:
    """Return all rows from ``offset`` up to ``end``, read in pieces."""
    rows: list[LogRow] = []
    while offset < end:
        rows += log.read(partition, offset, max_bytes)
        offset = rows[-1].offset + 1
    return rows


def filled(log: KafkaLog, topic: str, count: int, partitions: int = 1) -> TopicPartition:
    """Make a stream and append ``count`` numbered messages to its partition 0."""
    log.create_topic(topic, partitions)
    partition = TopicPartition(topic, 0)
    for number in range(count):
        log.send(0, number, partition, b"%d" % number)
    settle(log, count)
    return partition


# --- reading ---


def test_seeks_leave_nothing_stale(connect: Connect, topic: str) -> None:
    """R5: whatever was fetched before a seek, what comes after it is what is there, without a gap."""
    log = connect()
    partition = filled(log, topic, 3_000, partitions=2)
    log.read(TopicPartition(topic, 1), 0, 1)
    place = random.Random(1)
    for _ in range(60):
        offset = place.randrange(2_900)
        rows = read_to(log, partition, offset, offset + place.randrange(1, 100), max_bytes=2_000)
        assert [row.value for row in rows] == [b"%d" % number for number in range(offset, rows[-1].offset + 1)]


def test_fetching_ahead_is_bounded(connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is not read as fast as it could be is not fetched meanwhile; nothing is lost or comes twice."""
    monkeypatch.setattr(consumer, "AHEAD_BYTES_MAX", 5_000)
    log = connect()
    partition = filled(log, topic, 3_000)
    rows = read_to(log, partition, 0, 3_000, max_bytes=3_000)
    assert [row.value for row in rows] == [b"%d" % number for number in range(3_000)]


def test_a_partition_may_be_left_after_the_close(connect: Connect, topic: str) -> None:
    """A look that failed is given up once its error is forgotten: its log may be closed by then."""
    log = connect()
    partition = filled(log, topic, 1)
    log.expect({partition: (0, 1)})
    log.close()
    log.leave(partition)


def test_what_was_sought_comes_while_others_go_on(kafka_broker: Broker, topic: str) -> None:
    """A task that asks first whether rows are at hand does not wait; after a while a read waits for the fetch."""
    now_s = [0.0]
    log = KafkaLog(kafka_broker.bootstrap, patience=Patience(clock_s=lambda: now_s[0]))
    partition = filled(log, topic, 5)
    log.expect({partition: (0, 6)})  # one more than there is
    while not log.at_hand(partition, 0):
        log.wait(10)
    assert [row.offset for row in read_to(log, partition, 0, 5)] == [0, 1, 2, 3, 4]
    assert (log.at_hand(partition, 5), log.at_hand(partition, 3)) == (False, True)  # a read from 3 on seeks
    now_s[0] += 2 * consumer.LATE_S
    assert log.at_hand(partition, 5)
    log.close()


@pytest.mark.parametrize("stop", ["incremental_unassign", "pause"])  # the second outlives a new assignment
def test_a_partition_that_the_client_forgets_to_fetch_is_fetched_afresh(
    connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """A message that is there and does not come is asked for again, then of another client; none comes twice."""
    monkeypatch.setattr(consumer, "STUCK_S", 0.1)
    log = connect()
    partition = filled(log, topic, 1)
    log.read(partition, 0, 1)
    getattr(cast(Any, log).fetches._consumer, stop)([KafkaPartition(*partition)])  # it fetches no more
    for number in range(1, 100):
        log.send(0, number, partition, b"%d" % number)
    settle(log, 99)
    assert log.bounds(partition) == (0, 100)
    assert [row.value for row in read_to(log, partition, 1, 100)] == [b"%d" % number for number in range(1, 100)]


def test_a_log_trimmed_under_a_reader_is_an_error(
    connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K3: what was trimmed before it was fetched is never stepped over."""
    monkeypatch.setattr(consumer, "AHEAD_BYTES_MAX", 5_000)
    log, other = connect(), connect()
    partition = filled(log, topic, 1_000)
    rows = log.read(partition, 0, 1)
    other.trim(partition, 999)
    assert other.bounds(partition) == (999, 1_000)
    with pytest.raises(OffsetOutOfRange, match=r"is outside of 999 to 1000"):
        read_to(log, partition, rows[-1].offset + 1, 1_000)


def test_transactions_of_others_are_read_when_committed(kafka_broker: Broker, connect: Connect, topic: str) -> None:
    """S1: aborted records are not seen, markers are stepped over, and the end is the end of what can be read."""
    make(kafka_broker, topic)
    writer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": topic})
    writer.init_transactions()
    for number, keep in enumerate([True, False, True, False]):
        writer.begin_transaction()
        for part in range(3):
            writer.produce(topic, b"%d.%d" % (number, part), partition=0)
        writer.flush()  # an abort would drop what was not sent
        writer.commit_transaction() if keep else writer.abort_transaction()
    log, partition = connect(), TopicPartition(topic, 0)
    assert log.bounds(partition) == (0, 16)
    rows = read_to(log, partition, 0, 11)
    assert [row.value for row in rows] == [b"0.0", b"0.1", b"0.2", b"2.0", b"2.1", b"2.2"]
    assert log.read(partition, rows[-1].offset + 1, MiB) == []
    assert log.bounds(partition) == (0, rows[-1].offset + 1)
    assert [row.value for row in log.read(partition, 3, 1)] == [b"2.0"]  # offset 3 is a marker


def test_open_transactions_are_not_read(kafka_broker: Broker, connect: Connect, topic: str) -> None:
    """S1: what is not committed yet is neither read nor counted, and it is read once it is."""
    make(kafka_broker, topic)
    writer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": topic})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(topic, b"x", partition=0)
    writer.flush()
    log, partition = connect(), TopicPartition(topic, 0)
    assert (log.bounds(partition), log.read(partition, 0, 1)) == ((0, 0), [])
    writer.commit_transaction()
    log.wait(600_000)
    assert [row.value for row in log.read(partition, 0, 1)] == [b"x"]


# --- writing ---


def test_a_second_writer_shows_as_a_gap(connect: Connect, topic: str) -> None:
    """C3: a sole writer's offsets are contiguous; another's message is between them."""
    log, other = connect(), connect()
    partition = filled(log, topic, 100)
    other.send(0, 0, partition, b"foreign", fence=9)
    assert settle(other, 1)[0].offset == 100
    log.send(0, 0, partition, b"own", fence=1)
    assert settle(log, 1)[0][2:5] == (101, log.read(partition, 101, 1)[0].append_time_ms, False)


def test_a_full_queue_drops_nothing(connect: Connect, topic: str) -> None:
    """B1: what librdkafka has no room for stays queued, in order."""
    log = connect(producer_queue_buffering_max_messages=7)
    partition = filled(log, topic, 300)
    assert [row.value for row in read_to(log, partition, 0, 300)] == [b"%d" % number for number in range(300)]


def test_a_delivery_ends_a_wait(connect: Connect, topic: str) -> None:
    """A wait returns for a delivery, too, and the poll after it reports it."""
    log = connect()
    partition = filled(log, topic, 1)
    log.send(3, 4, partition, b"x")
    found = log.poll()
    while not found:
        log.wait(600_000)
        found = log.poll()
    assert [(each.owner, each.token, each.offset) for each in found] == [(3, 4, 1)]


def test_a_message_ends_a_wait_without_answers(connect: Connect, topic: str) -> None:
    """A message alone ends a wait without deliveries; deliveries come with the next polls."""
    log = connect()
    partition = filled(log, topic, 1)
    assert [row.offset for row in read_to(log, partition, 0, 1)] == [0]
    log.send(3, 4, partition, b"x")
    found = log.poll()
    while not (rows := log.read(partition, 1, 1)):
        log.wait(600_000, answers=False)
    while not found:
        log.wait(600_000)
        found = log.poll()
    assert ([row.value for row in rows], [each.token for each in found]) == ([b"x"], [4])


def test_one_delivery_answers_for_all_partitions(connect: Connect, topic: str) -> None:
    """A7: records of several partitions, more than are handed over in one go, are all there when they are reported."""
    log = connect(producer_queue_buffering_max_messages=70)
    log.create_topic(topic, 3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    headers = encode_headers([("h", b"x")])
    log.produce(
        5,
        6,
        [
            ExternalRecord(partitions[number % 2], b"k", b"%d" % number, number, None if number % 7 else headers)
            for number in range(1_700)
        ],
    )
    assert [(each.owner, each.token) for each in settle(log, 1)] == [(5, 6)]
    assert [log.bounds(partition)[1] for partition in partitions] == [850, 850, 0]
    rows = read_to(log, partitions[1], 0, 850)
    assert [row.value for row in rows] == [b"%d" % number for number in range(1, 1_700, 2)]
    assert [row.headers for row in rows] == [None if number % 7 else headers for number in range(1, 1_700, 2)]


def test_a_record_that_fails_is_never_covered_by_those_behind_it(
    kafka_broker: Broker, connect: Connect, topic: str
) -> None:
    """A7: a record without a callback that the broker refuses leaves its partition's last one without a delivery."""
    make(kafka_broker, topic, max_message_bytes="10000")
    partition = TopicPartition(topic, 0)
    log = connect(producer_batch_size=5_000)
    sizes = [100] * 2_000 + [20_000] + [100] * 2_000
    log.produce(0, 0, [ExternalRecord(partition, None, b"x" * size, 1) for size in sizes])
    with pytest.raises(Halted, match=r"size too large.*max\.message\.bytes"):
        settle(log, 1)
    assert 0 < connect().bounds(partition)[1] <= 2_000


def answered(writer: KafkaWriter) -> list[Delivery]:
    """Return the first deliveries."""
    while not (found := writer.poll()):
        writer.wait(1)
    return found


@pytest.mark.parametrize("plain", [False, True])
def test_an_offset_that_the_client_was_not_told_is_an_error(kafka_broker: Broker, topic: str, plain: bool) -> None:
    """A7: it is not 0. Without acknowledgements the client learns no offsets, as when a broker drops a repeat."""
    make(kafka_broker, topic)
    partition = TopicPartition(topic, 0)
    writer = KafkaWriter({"bootstrap.servers": kafka_broker.bootstrap, "acks": 0}, Troubles(str))
    if plain:
        writer.produce(1, 2, [ExternalRecord(partition, None, b"x", 1)])
    else:
        writer.send(1, 2, partition, b"x")
    with pytest.raises(TransientError, match="did not say at which offset it is: start again"):
        answered(writer)
    writer.close()


def test_append_times_never_go_back_in_kafka(connect: Connect, topic: str) -> None:
    """A1: an internal topic has the log's append times."""
    rows = read_to(connect(), filled(connect(), topic, 200), 0, 200)
    assert all(a[1] <= b[1] for a, b in pairwise(rows))


def test_a_message_too_large_halts(kafka_broker: Broker, connect: Connect, topic: str) -> None:
    """A message that the topic does not take ends the process with the setting to raise, from client and broker."""
    make(kafka_broker, topic)
    partition = TopicPartition(topic, 0)
    for size in (MiB + 1_000, 3 * MiB):
        log = connect()
        log.produce(0, 0, [ExternalRecord(partition, None, b"x" * size, 1)])
        with pytest.raises(Halted, match=rf"{size} bytes to {topic}\[0\].*max\.message\.bytes.*frame_bytes_max"):
            settle(log, 1)
