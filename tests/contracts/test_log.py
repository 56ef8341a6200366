"""What every log must keep: the numbered statements of framework.ports.Log, over each back end."""

from collections.abc import Callable

import pytest

from framework.errors import ConfigError, OffsetOutOfRange
from framework.ports import Delivery, ExternalRecord, Log
from protocol.frames import encode_headers
from protocol.ids import TopicPartition
from tests.contracts.worlds import Recent, World

A0, A1, OUT = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("out", 0)
MiB = 1 << 20
FENCING = ("embedded", "memory")  # Kafka cannot compare and append: there, the core checks offsets (C3)


def values(log: Log, partition: TopicPartition, offset: int = 0) -> list[bytes | None]:
    """Return all values from ``offset`` on, read in small pieces."""
    found: list[bytes | None] = []
    while rows := log.read(partition, offset, 200):
        found += [row.value for row in rows]
        offset = rows[-1].offset + 1
    return found


def shown(log: Log, partition: TopicPartition, count: int) -> list[bytes | None]:
    """Return all values when there are that many: Kafka says that a transaction is committed before all can see it."""
    while len(found := values(log, partition)) < count:
        log.wait(100)
    return found


def record(value: bytes) -> ExternalRecord:
    """Return a plain record for OUT."""
    return ExternalRecord(OUT, b"k", value, 7)


# --- topics ---


def test_a_topic_is_made_once(world: World, log: Log) -> None:
    """Making a topic again with the same number of partitions changes nothing, on any connection."""
    log.send(0, 0, A0, b"kept")
    log.poll()
    world.open().create_topic("a", 2)
    assert (log.partitions("a"), values(log, A0)) == (2, [b"kept"])


def test_another_number_of_partitions_is_refused(log: Log) -> None:
    """A topic that exists with another number of partitions is a ConfigError that names both numbers."""
    with pytest.raises(ConfigError, match=r"topic a has 2 partitions, not 3"):
        log.create_topic("a", 3)
    assert log.partitions("a") == 2


@pytest.mark.parametrize(("name", "partitions"), [("", 1), ("a/b", 1), ("x" * 121, 1), ("b", 0), ("b", 65_537)])
def test_bad_topics_are_refused(log: Log, name: str, partitions: int) -> None:
    """Bad names and impossible numbers of partitions are ConfigErrors and leave nothing behind."""
    with pytest.raises(ConfigError):
        log.create_topic(name, partitions)
    assert log.topics() == ["a", "out"]


def test_topics_are_listed_sorted(log: Log) -> None:
    """All names are listed, sorted; a topic that is not there has no partitions."""
    log.create_topic("Z", 1)
    assert (log.topics(), log.partitions("b")) == (["Z", "a", "out"], None)


@pytest.mark.parametrize("partition", [TopicPartition("b", 0), TopicPartition("a", 2), TopicPartition("a", -1)])
def test_an_unknown_partition_is_refused(log: Log, partition: TopicPartition) -> None:
    """Every use of a partition that is not there is a ConfigError that names it, at the call, not at the poll."""
    uses: list[Callable[[], object]] = [
        lambda: log.bounds(partition),
        lambda: log.read(partition, 0, 1),
        lambda: log.trim(partition, 0),
        lambda: log.send(0, 0, partition, b""),
        lambda: log.send(0, 0, A0, b"", outputs=[record(b"")._replace(partition=partition)]),
        lambda: log.produce(0, 0, [record(b"")._replace(partition=partition)]),
    ]
    for use in uses:
        with pytest.raises(ConfigError, match=partition.topic):
            use()
    assert log.poll() == []


# --- 1 and 2: order and deliveries ---


def test_sends_are_appended_in_order(log: Log) -> None:
    """Statement 1: messages to one partition stand in the order of the sends, whatever goes elsewhere in between."""
    for number in range(30):
        log.send(0, number, (A0, A1)[number % 2], b"%d" % number)
    log.poll()
    assert [b"%d" % number for number in range(0, 30, 2)] == values(log, A0)
    assert [b"%d" % number for number in range(1, 30, 2)] == values(log, A1)


def test_each_send_has_one_delivery(log: Log) -> None:
    """Statement 2: each send is reported once, with owner, token, offset and append time."""
    log.send(5, 50, A0, b"x")
    log.send(6, 60, A0, b"y")
    log.send(5, 51, A1, b"z")
    assert [(each.owner, each.token, each.offset) for each in sorted(log.poll())] == [
        (5, 50, 0),
        (5, 51, 0),
        (6, 60, 1),
    ]
    assert log.poll() == []


def test_a_delivered_message_is_there_for_all(world: World, log: Log) -> None:
    """Statement 2: what was delivered is read by other connections, also after this one is gone."""
    log.send(0, 0, A0, b"x", sync=True)
    log.poll()
    log.close()
    assert values(world.open(), A0) == [b"x"]


def test_what_was_not_polled_is_lost(world: World, log: Log) -> None:
    """Statement 2: a connection that ends before its poll leaves nothing."""
    log.send(0, 0, A0, b"x")
    log.produce(0, 1, [record(b"p")])
    log.close()
    other = world.open()
    assert (other.poll(), other.bounds(A0), other.bounds(OUT)) == ([], (0, 0), (0, 0))


def test_connections_share_the_offsets(world: World, log: Log) -> None:
    """Statement 3: two writers of one partition continue each other's offsets."""
    other = world.open()
    offsets = []
    for number in range(6):
        writer = (log, other)[number % 2]
        writer.send(0, 0, A0, b"%d" % number)
        offsets += [delivery.offset for delivery in writer.poll()]
    assert offsets == list(range(6))
    assert values(log, A0) == [b"%d" % number for number in range(6)]


def test_an_internal_message_comes_back_as_it_was_sent(world: World, log: Log) -> None:
    """An internal message is a value with no key and no headers; its timestamp is its append time."""
    log.send(0, 0, A0, b"")
    log.poll()
    assert log.read(A0, 0, 1) == [(0, world.time, world.time, None, b"", None)]


def test_append_times_never_go_back(world: World, log: Log) -> None:
    """A1: the append time is the later of the partition's last one and the clock, the same for writer and reader."""
    times = []
    for world.now_ms in (1_000, 3_000, 2_000, 4_000):
        log.send(0, 0, A0, b"x")
        times += [delivery.append_time_ms for delivery in log.poll()]
    assert times == [row.append_time_ms for row in log.read(A0, 0, MiB)] == sorted(times)
    assert times == ([world.time] * 4 if isinstance(world.time, Recent) else [1_000, 3_000, 3_000, 4_000])


# --- plain records and outputs ---


def test_plain_records_have_one_delivery(log: Log) -> None:
    """Produced records are reported together, by the offset of the last one; none at all by offset -1."""
    log.produce(1, 10, [record(b"x"), record(b"y")])
    log.produce(1, 11, [])
    log.produce(1, 12, [record(b"z")])
    assert [(delivery.token, delivery.offset) for delivery in sorted(log.poll())] == [(10, 1), (11, -1), (12, 2)]
    assert values(log, OUT) == [b"x", b"y", b"z"]


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v\x00"])
@pytest.mark.parametrize("headers", [None, encode_headers([("h", b"1"), ("h", b"")])])
def test_plain_records_come_back_as_produced(
    log: Log, key: bytes | None, value: bytes | None, headers: bytes | None
) -> None:
    """Null and empty are different; timestamps are the record's own, before 1970 too."""
    log.produce(0, 0, [ExternalRecord(OUT, key, value, -5, headers)])
    log.poll()
    ((offset, _, *row),) = log.read(OUT, 0, 1)
    assert (offset, *row) == (0, -5, key, value, headers)


def test_outputs_appear_with_their_message(world: World, log: Log) -> None:
    """S1: no reader sees outputs before their message, nor the message without them."""
    log.transactional(A0)
    log.send(0, 0, A0, b"data")
    log.send(0, 1, A0, b"commit", sync=True, outputs=[record(b"x"), record(b"y")])
    other = world.open()
    assert (values(other, A0), values(other, OUT)) == ([], [])
    assert [delivery[:5] for delivery in log.poll()] == [(0, 0, 0, world.time, False), (0, 1, 1, world.time, False)]
    assert log.bounds(A0)[1] >= 2
    assert (shown(other, A0, 2), shown(other, OUT, 2)) == ([b"data", b"commit"], [b"x", b"y"])


def test_who_sends_last_owns_a_transactional_partition(world: World, log: Log) -> None:
    """S1: once another connection has sent with a higher fence, nothing of this one's appears, outputs included."""
    log.transactional(A0)
    log.send(0, 0, A0, b"one", sync=True, fence=1)
    assert not log.poll()[0].fenced
    other = world.open()
    other.transactional(A0)
    other.send(0, 0, A0, b"two", sync=True, fence=2)
    assert not other.poll()[0].fenced
    log.send(0, 1, A0, b"three", sync=True, fence=1, outputs=[record(b"stale")])
    assert [(delivery.token, delivery.fenced) for delivery in log.poll()] == [(1, True)]
    assert (shown(other, A0, 2), values(other, OUT)) == ([b"one", b"two"], [])


# --- fences (C3) ---


@pytest.mark.parametrize("world", FENCING, indirect=True)
def test_a_lower_generation_is_fenced_with_its_outputs(world: World, log: Log) -> None:
    """C3: after a send of generation 2, one of generation 1 is refused on any connection, and its outputs too."""
    log.send(0, 0, A0, b"two", fence=2)
    log.poll()
    zombie = world.open()
    zombie.send(0, 1, A0, b"one", fence=1, outputs=[record(b"stale")])
    (delivery,) = zombie.poll()
    assert (delivery.token, delivery.fenced) == (1, True)
    assert (values(log, A0), values(log, OUT)) == ([b"two"], [])


@pytest.mark.parametrize("world", FENCING, indirect=True)
def test_a_fence_counts_within_one_batch(log: Log) -> None:
    """C3: the order of the sends decides, also inside of one poll; the own and higher generations pass."""
    for token, generation in enumerate([1, 1, 3, 2, 3, 4]):
        log.send(0, token, A0, b"%d" % generation, fence=generation)
    assert [delivery.fenced for delivery in log.poll()] == [False, False, False, True, False, False]
    assert values(log, A0) == [b"1", b"1", b"3", b"3", b"4"]


@pytest.mark.parametrize("world", FENCING, indirect=True)
def test_a_fence_holds_for_its_partition_only(log: Log) -> None:
    """A fence on one partition lets lower generations pass on another, and sends without a fence everywhere."""
    log.send(0, 0, A0, b"x", fence=9)
    log.send(0, 1, A1, b"y", fence=1)
    log.send(0, 2, A0, b"z")
    assert not any(delivery.fenced for delivery in log.poll())
    assert (values(log, A0), values(log, A1)) == ([b"x", b"z"], [b"y"])


@pytest.mark.parametrize("world", FENCING, indirect=True)
def test_a_fenced_send_leaves_the_others(log: Log) -> None:
    """Other sends of the same poll are appended without a gap when one of them is fenced."""
    log.send(0, 0, A0, b"claim", fence=2)
    log.send(0, 1, A0, b"stale", fence=1)
    log.send(0, 2, A1, b"frame")
    log.send(0, 3, A0, b"data", fence=2)
    assert [(each.offset, each.fenced) for each in log.poll() if not each.fenced] == [
        (0, False),
        (0, False),
        (1, False),
    ]
    assert (values(log, A0), values(log, A1)) == ([b"claim", b"data"], [b"frame"])


# --- 3 and 4: bounds, reading, trimming ---


def fill(log: Log, count: int, size: int = 10) -> None:
    """Append ``count`` messages to A0."""
    for number in range(count):
        log.send(0, number, A0, b"%d" % number + b" " * (size - len(b"%d" % number)))
    log.poll()


def test_bounds_follow_appends_and_trims(log: Log) -> None:
    """Statement 3: offsets start at 0; a trim moves the start only."""
    assert log.bounds(A0) == (0, 0)
    fill(log, 5)
    assert log.bounds(A0) == (0, 5)
    log.trim(A0, 3)
    assert log.bounds(A0) == (3, 5)
    fill(log, 1)
    assert (log.bounds(A0), [row.offset for row in log.read(A0, 3, MiB)]) == ((3, 6), [3, 4, 5])


def test_reading_starts_at_the_offset(log: Log) -> None:
    """Statement 4: nothing before the offset is returned; at the end there is nothing, and no waiting."""
    fill(log, 5)
    assert [[row.offset for row in log.read(A0, offset, MiB)] for offset in (0, 3, 4, 5)] == [
        [0, 1, 2, 3, 4],
        [3, 4],
        [4],
        [],
    ]


def test_reading_is_bounded_by_bytes(log: Log) -> None:
    """At least one message, else no more than the budget and one message beyond it."""
    fill(log, 50, 1_000)
    sizes = [len(log.read(A0, 0, budget)) for budget in (0, 1, 1_000, 10_000)]
    assert sizes[:3] == [1, 1, 1]
    assert 8 <= sizes[3] <= 10
    assert len(log.read(A0, 0, MiB)) == 50


def test_tiny_messages_are_bounded_too(log: Log) -> None:
    """Empty messages count as something, so that a read of a long partition ends."""
    for _ in range(500):
        log.send(0, 0, A0, b"")
    log.poll()
    assert len(log.read(A0, 0, 1_000)) < 100


def test_out_of_range_is_an_error(log: Log) -> None:
    """A read before the start or beyond the end raises, and the text has the offset and both bounds."""
    fill(log, 5)
    log.trim(A0, 2)
    for offset in (-1, 0, 1, 6, 1 << 41):
        with pytest.raises(OffsetOutOfRange, match=rf"a\[0\]: offset {offset} is outside of 2 to 5"):
            log.read(A0, offset, MiB)


def test_trimming_is_idempotent(log: Log) -> None:
    """K3: a trim to where the start is or was does nothing; one beyond the end is an error and does nothing."""
    fill(log, 5)
    for before in (3, 3, 1, 0):
        log.trim(A0, before)
    with pytest.raises(OffsetOutOfRange):
        log.trim(A0, 6)
    assert log.bounds(A0) == (3, 5)


def test_a_trim_to_the_end_keeps_the_offsets(world: World, log: Log) -> None:
    """Statement 3: an emptied partition goes on where it was, with its time."""
    log.send(0, 0, A0, b"x")
    log.poll()
    log.trim(A0, 1)
    world.now_ms = 10
    again = world.open()
    again.send(0, 2, A0, b"y")
    assert again.poll() == [Delivery(0, 2, 1, world.time)]  # type: ignore[arg-type]
    assert again.read(A0, 1, 1) == [(1, world.time, world.time, None, b"y", None)]


@pytest.mark.parametrize("world", FENCING, indirect=True)
def test_a_trim_to_the_end_keeps_the_fence(world: World, log: Log) -> None:
    """C3: an emptied partition still refuses a lower generation."""
    log.send(0, 0, A0, b"x", fence=3)
    log.poll()
    log.trim(A0, 1)
    again = world.open()
    again.send(0, 1, A0, b"stale", fence=2)
    (stale,) = again.poll()
    assert stale.fenced


def test_a_trim_leaves_the_other_partitions(log: Log) -> None:
    """The neighbours of a trimmed partition keep every message."""
    for partition in (A0, A1, OUT):
        log.send(0, 0, partition, b"x")
    log.poll()
    log.trim(A1, 1)
    assert (log.bounds(A0), log.bounds(A1), log.bounds(OUT)) == ((0, 1), (1, 1), (0, 1))


def test_large_payloads_pass(log: Log) -> None:
    """A message of 1 MB and 8 MB of plain records go in one poll, and a small read budget returns them one by one."""
    outputs = [record(bytes([number]) * 1_000_000) for number in range(8)]
    log.send(0, 0, A0, b"m" * MiB, sync=True)
    log.produce(0, 1, outputs)
    log.poll()
    assert log.read(A0, 0, 1)[0].value == b"m" * MiB
    assert values(log, OUT) == [output.value for output in outputs]


def test_a_wait_ends(world: World, log: Log) -> None:
    """A wait returns when another connection has appended to what we read, and at the time-out when none has."""
    assert values(log, A0) == []
    log.wait(0)
    log.wait(1)
    other = world.open()
    other.send(0, 0, A0, b"x")
    other.poll()
    log.wait(600_000)
    assert values(log, A0) == [b"x"]
