"""A sink's changelog on Kafka: outputs with their commit or not at all, one holder, no transaction for ever."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from grete.errors import ConfigError, FrameworkError, Halted, TransientError
from grete.logs.kafka import KafkaLog
from grete.logs.partition_reader import rows_left
from grete.ports import Delivery, ExternalRecord
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from tests.logs.outputs import everything, visible

pytestmark = pytest.mark.kafka
Connect = Callable[..., KafkaLog]
MiB = 1 << 20


@pytest.fixture
def name() -> str:
    """The beginning of topics' names that no other test uses."""
    return f"t{os.urandom(6).hex()}"


@pytest.fixture
def changelog(name: str) -> TopicPartition:
    """A sink's changelog."""
    return TopicPartition(f"{name}.changelog", 0)


@pytest.fixture
def out(name: str) -> TopicPartition:
    """Return the partition that a sink writes."""
    return TopicPartition(f"{name}.out", 0)


@pytest.fixture
def connect(kafka_broker: Broker, changelog: TopicPartition, out: TopicPartition) -> Iterator[Connect]:
    """Opens connections that write the changelog in transactions; they are closed at the end."""
    opened: list[KafkaLog] = []

    def connect(**options: str | int) -> KafkaLog:
        named = {f"producer.{name.replace('_', '.')}": each for name, each in options.items()}
        log = KafkaLog(kafka_broker.bootstrap, named)
        opened.append(log)
        log.create_topic(changelog.topic, 1)
        log.create_topic(out.topic, 1, plain=True)
        log.transactional(changelog)
        return log

    yield connect
    for each in opened:
        each.close()


def ended(log: KafkaLog) -> list[Delivery]:
    """Return the deliveries by which the end of a transaction becomes known."""
    found = log.poll()
    while not found:
        log.wait(10_000)
        found = log.poll()
    return found


def commit(log: KafkaLog, changelog: TopicPartition, value: bytes, outputs: list[ExternalRecord]) -> Delivery:
    """Send a data message, then one that ends the transaction; return the latter's delivery."""
    log.send(0, -2, changelog, b"data of " + value)
    log.send(0, -1, changelog, value, sync=True, outputs=outputs)
    return ended(log)[-1]


def record(out: TopicPartition, value: bytes, headers: bytes | None = None) -> ExternalRecord:
    """Return an output."""
    return ExternalRecord(out, b"k", value, 7, headers)


def test_a_transaction_has_one_marker_in_the_changelog(
    connect: Connect, changelog: TopicPartition, out: TopicPartition
) -> None:
    """C3: what a delivery says of the offsets behind it is where the next message is, whatever it commits."""
    log, offset = connect(), 0
    for number in range(4):
        outputs = [record(out, b"%d" % number)] * number
        delivery = commit(log, changelog, b"%d" % number, outputs)
        assert (delivery.offset, delivery.fenced, delivery.trailing) == (offset + 1, False, 1)
        offset = delivery.offset + 1 + delivery.trailing
        assert log.bounds(changelog)[1] >= delivery.offset + 1  # though the broker writes markers later
    rows = log.read(changelog, 0, MiB)
    assert [row.value for row in rows] == [
        b"data of 0",
        b"0",
        b"data of 1",
        b"1",
        b"data of 2",
        b"2",
        b"data of 3",
        b"3",
    ]


def test_every_message_of_the_changelog_is_reported(connect: Connect, changelog: TopicPartition) -> None:
    """Statement 2: data, too, but only with what ends the transaction."""
    log = connect()
    log.send(3, 8, changelog, b"data")
    assert log.poll() == []
    log.send(3, 9, changelog, b"commit", sync=True)
    assert [(each.owner, each.token, each.offset, each.trailing) for each in ended(log)] == [(3, 8, 0, 0), (3, 9, 1, 1)]


def test_outputs_appear_with_their_commit(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition
) -> None:
    """S1: outputs come as they were sent, once, and only with their commit."""
    log = connect()
    headers = encode_headers([("h", b"1")])
    log.send(0, -2, changelog, b"data")
    log.send(0, -1, changelog, b"one", sync=True, outputs=[record(out, b"x", headers), record(out, b"y")])
    assert everything(kafka_broker, out) == []
    ended(log)
    assert visible(kafka_broker, out) == [b"x", b"y"]
    assert log.bounds(out)[0] == 0
    assert [row[2:] for row in log.read(out, 0, MiB)] == [(7, b"k", b"x", headers), (7, b"k", b"y", None)]
    commit(log, changelog, b"two", [record(out, b"%d" % number) for number in range(3_000)])
    assert visible(kafka_broker, out) == [b"x", b"y", *(b"%d" % number for number in range(3_000))]


def test_headers_of_a_deterministic_task_come_as_they_were_sent(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition
) -> None:
    """They are taken apart in a quicker way than others; what only looks like them is not."""
    log = connect()
    ours, long = [("grete", b"12 1795316761187000 j/s-0")], [("grete", b"7" * 0x130)]
    before = [("grete.producer", b"65536"), ("grete.seq", b"12"), ("grete.t", b"1795316761187000")]
    lookalikes = [[("grete", b"")], [("gretel", b"1")], [("a", b"1"), *ours], [*ours, ("a", b"1")], before]
    cells = [encode_headers(headers) for headers in (ours, long, *lookalikes)]
    commit(log, changelog, b"one", [record(out, b"x", cell) for cell in cells])
    assert visible(kafka_broker, out) == [b"x"] * len(cells)
    assert log.bounds(out)[0] == 0
    found = [row.headers for row in log.read(out, 0, MiB)]
    assert found == cells


def test_a_full_queue_holds_up_the_transaction_only(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition
) -> None:
    """B1: outputs that librdkafka has no room for wait their turn, in order."""
    log = connect(queue_buffering_max_messages=7)
    values = [b"%d" % number for number in range(300)]
    assert not commit(log, changelog, b"one", [record(out, value) for value in values]).fenced
    assert visible(kafka_broker, out) == values


def test_a_successor_fences(
    kafka_broker: Broker,
    connect: Connect,
    changelog: TopicPartition,
    out: TopicPartition,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S1: the successor's claim takes the transactional id over; nothing of the predecessor's appears after it."""
    caplog.set_level("INFO")
    old, new = connect(), connect()
    commit(old, changelog, b"one", [record(out, b"1")])
    new.send(0, -1, changelog, b"claim", sync=True)
    assert not ended(new)[0].fenced
    old.send(0, -1, changelog, b"two", sync=True, outputs=[record(out, b"stale")])
    old.poll()
    old.wait(10_000)
    old.send(0, -2, changelog, b"data of three")  # the task does not know yet
    [delivery] = old.poll()
    assert (delivery.token, delivery.fenced) == (-1, True)
    with pytest.raises(TransientError, match=f"{changelog.topic}-0 was taken over"):
        old.send(0, -1, changelog, b"three", sync=True)
    commit(new, changelog, b"two", [record(out, b"2")])
    assert visible(kafka_broker, out) == [b"1", b"2"]
    told = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "grete.kafka"]
    moved = f"transactional id {changelog.topic}-0 is another process's now"
    assert [each for each in told if each[0] in ("ERROR", "CRITICAL") or "transactional id" in each[1]] == [
        ("INFO", moved)
    ]


def left_open(broker: Broker, changelog: TopicPartition, out: TopicPartition, *, timeout_ms: int) -> Producer:
    """Write a predecessor's messages in a transaction that it does not end."""
    dead = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": f"{changelog.topic}-{changelog.partition}",
            "transaction.timeout.ms": timeout_ms,
        }
    )
    dead.init_transactions()
    dead.begin_transaction()
    for partition in (changelog, out):
        dead.produce(partition.topic, b"lost", partition=partition.partition)
    dead.flush()
    return dead


def test_what_a_predecessor_left_open_is_aborted(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition
) -> None:
    """S1: an open transaction hides what comes behind it; the claim ends it, long before its time-out."""
    log = connect()
    left_open(kafka_broker, changelog, out, timeout_ms=600_000)
    log.send(0, -1, changelog, b"claim", sync=True)
    ended(log)
    start, end = log.bounds(changelog)
    rows = log.read(changelog, start, MiB)
    assert [(row.offset, row.value) for row in rows] == [
        (2, b"claim")
    ]  # behind the lost message and the abort's marker
    assert end >= 3
    assert log.read(changelog, 3, MiB) == []
    commit(log, changelog, b"one", [record(out, b"1")])
    assert visible(kafka_broker, out) == [b"1"]


def test_a_plain_writer_waits_behind_an_open_transaction(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition
) -> None:
    """R1: a task that wrote outputs yesterday and does not any more reads its changelog only up to its end."""
    connect()
    left_open(kafka_broker, changelog, out, timeout_ms=1_000)
    plain = KafkaLog(kafka_broker.bootstrap)
    plain.send(0, -1, changelog, b"claim", sync=True)
    (delivery,) = ended(plain)
    assert plain.bounds(changelog)[1] > delivery.offset
    assert [row.value for row in plain.read(changelog, 0, MiB)] == [b"claim"]
    plain.close()


def test_what_is_committed_is_awaited(
    kafka_broker: Broker,
    connect: Connect,
    changelog: TopicPartition,
    out: TopicPartition,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R1: a broker writes the end of a transaction late; a store that is ahead of it is no sign of a damaged log."""
    log = connect()
    dead = left_open(kafka_broker, changelog, out, timeout_ms=600_000)
    ending = threading.Timer(0.3, dead.commit_transaction)
    ending.start()
    log.transactional(changelog, committed=0)
    assert log.bounds(changelog)[1] > 0
    ending.join()
    monkeypatch.setattr("grete.logs.kafka.log.COMPLETED_S_MAX", 0.1)
    log.transactional(changelog, committed=1_000)
    assert log.bounds(changelog) == (0, 2)  # what is not there after all is for the core to judge


def test_an_output_too_large_halts(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition
) -> None:
    """Client or broker refuses it, naming the setting; the transaction is aborted: no reader waits for its time-out."""
    for size in (MiB + 1_000, 3 * MiB):
        log = connect(transaction_timeout_ms=600_000)
        log.send(0, -1, changelog, b"c", sync=True, outputs=[record(out, b"small"), record(out, b"x" * size)])
        with pytest.raises(Halted, match=r"max\.message\.bytes"):
            ended(log)
        assert visible(kafka_broker, out) == []


def test_a_time_out_that_the_broker_does_not_take_is_refused(connect: Connect, changelog: TopicPartition) -> None:
    """The error names the setting: it is the broker's to allow more than 15 minutes."""
    log = connect(transaction_timeout_ms=1_000_000)
    log.send(0, -1, changelog, b"claim", sync=True)
    with pytest.raises(ConfigError, match=r"transaction\.max\.timeout\.ms"):
        ended(log)


def test_outputs_need_a_declaration(connect: Connect, name: str, out: TopicPartition) -> None:
    """S3: only sinks use transactions; outputs anywhere else would not be atomic, so they are refused."""
    log = connect()
    log.create_topic(f"{name}.plain", 1)
    with pytest.raises(ConfigError, match="transactional"):
        log.send(0, 0, TopicPartition(f"{name}.plain", 0), b"x", outputs=[record(out, b"y")])


def test_a_closed_log_leaves_no_thread(connect: Connect, changelog: TopicPartition, out: TopicPartition) -> None:
    """Closing ends the thread, in the middle of a transaction, too; whether that is committed is open (C4)."""
    log = connect()
    thread = log._transactions[changelog]._thread
    log.send(0, -1, changelog, b"c", sync=True, outputs=[record(out, b"y")] * 50_000)
    log.poll()
    log.close()
    assert not thread.is_alive()


def test_a_failure_is_raised_to_the_end(connect: Connect, changelog: TopicPartition, out: TopicPartition) -> None:
    """C4: after a failed transaction nothing goes on as if it had not been."""
    log = connect()
    log.send(0, -1, changelog, b"c", sync=True, outputs=[record(out, b"x" * (3 * MiB))])
    for _ in range(2):
        with pytest.raises(FrameworkError):
            ended(log)


def test_a_record_that_the_client_refuses_fails_its_transaction(kafka_broker: Broker) -> None:
    """Records and entry go out as a whole: the error is one of ours and says where; neither is there."""
    name = f"whole-{os.urandom(4).hex()}"
    at = TopicPartition(name, 0)
    with closing(KafkaLog(kafka_broker.bootstrap)) as log:
        log.create_topic(name, 1, plain=True)
        metadata = log.open_metadata(name, transactional=f"{name}.redrive")
        small, large = (ExternalRecord(at, b"k", b"x" * size, 1) for size in (1, 64 << 20))
        with pytest.raises(FrameworkError, match=rf"sending to {name}\[0\], in a transaction of {name}.redrive"):
            metadata.produce_with_meta([small, large], {"redriven/x/0": b"0-1"})
        assert list(rows_left(log, at, *log.bounds(at))) == []
        assert log.read_metadata(name).meta_get("redriven/x/0") is None
        metadata.produce_with_meta([small], {"redriven/x/0": b"0"})
        log.open_metadata(name, transactional=f"{name}.redrive")  # who takes the id over sees what was committed
        assert [row.value for row in rows_left(log, at, *log.bounds(at))] == [b"x"]
        assert log.read_metadata(name).meta_get("redriven/x/0") == b"0"
