"""The end of a transaction whose outcome is unknown, or that may come again: it is made known, and nothing is split."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from grete.errors import ConfigError, Fenced, Halted, TransientError
from grete.halts import HaltCode
from grete.logs.kafka import KafkaLog
from grete.logs.kafka.client.config import split_options, transactional
from grete.logs.kafka.client.endings import ONCE_S, RETRY_MS, TransactionOutcome, may_come_again, outcome, tells
from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.write import tail, transactional_writer, whole_writer
from grete.logs.kafka.write.tail import read_tail
from grete.ports import ExternalRecord
from grete.protocol.changelog import ChangelogHeader, ChangelogType, encode_changelog_header
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from tests.logs.outputs import visible
from tests.logs.test_kafka_transactions import changelog, commit, connect, ended, name, out, record

__all__ = ["changelog", "connect", "name", "out"]  # fixtures

Connect = Callable[..., KafkaLog]

DATA, COMMIT = ChangelogType.DATA, ChangelogType.COMMIT


def test_an_end_that_was_quick_was_asked_for_once() -> None:
    """A client waits before it asks again; how long is pinned, whatever the user's options say."""
    assert [may_come_again(ONCE_S - 0.001), may_come_again(ONCE_S)] == [False, True]
    assert 1000 * ONCE_S <= 0.8 * RETRY_MS  # librdkafka makes a wait shorter by up to a fifth
    producer, _, _ = split_options("b:1", "g", {"retry.backoff.ms": 1, "retry.backoff.max.ms": 1})
    made = transactional(producer, "t")
    assert made["retry.backoff.ms"] == RETRY_MS
    assert int(made["retry.backoff.max.ms"]) >= RETRY_MS * 1.2  # else it would cut the wait short


def test_what_is_behind_the_last_message_tells_the_outcome() -> None:
    """All of the transaction, nothing, a part of it, or what another has written."""
    own = [b"data", b"commit"]
    assert outcome(own, own) is TransactionOutcome.THERE
    assert outcome(own, []) is TransactionOutcome.ABSENT
    assert outcome(own, [b"data"]) is TransactionOutcome.SPLIT
    assert outcome(own, [*own, b"claim"]) is TransactionOutcome.FOREIGN
    assert outcome([], [b"claim"]) is TransactionOutcome.FOREIGN


def test_the_data_of_others_tell_nothing() -> None:
    """Processes of a bulk write add data between its commits (2.5); who takes a task over writes a claim first."""
    data, commit = (encode_changelog_header(ChangelogHeader(kind, 1, 0, 0)) for kind in (DATA, COMMIT))
    assert [tells([], data), tells([data], data), tells([], commit), tells([], b"damaged")] == [False, True, True, True]


class Unlucky(Producer):
    """Its next end of a transaction fails as it is told to, once: after it was asked for, or in place of it."""

    code: int | None = None
    asks = True

    def commit_transaction(self, *arguments: Any) -> None:
        """Commit, or not, and fail."""
        code, Unlucky.code = self.code, None
        if code is None or self.asks:
            super().commit_transaction(*arguments)
        if code is not None:
            raise KafkaException(KafkaError(code, "unlucky", fatal=True))


@pytest.fixture
def unlucky(monkeypatch: pytest.MonkeyPatch) -> type[Unlucky]:
    """The producer of transactions."""
    monkeypatch.setattr(transactional_writer, "Producer", Unlucky)
    return Unlucky


@pytest.mark.kafka
@pytest.mark.parametrize("asks", [True, False])
def test_an_unknown_outcome_is_made_known(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition, unlucky: Any, asks: bool
) -> None:
    """C4: what is there is not written again, what is not there is; of a claim, too."""
    log = connect()
    values, offsets = [b"claim", b"one", b"two"], []
    for value in values:
        unlucky.code, unlucky.asks = KafkaError._TIMED_OUT, asks
        delivery = commit(log, changelog, value, [record(out, value)])
        assert (delivery.fenced, delivery.trailing) == (False, 1)
        offsets.append(delivery.offset)
    assert visible(kafka_broker, out) == values
    assert log.bounds(changelog)[1] > offsets[-1]
    rows = log.read(changelog, 0, 1 << 20)
    assert [row.value for row in rows] == [each for value in values for each in (b"data of " + value, value)]
    assert [row.offset for row in rows[1::2]] == offsets


@pytest.mark.kafka
def test_an_end_that_was_slow_is_followed_by_a_new_epoch(
    kafka_broker: Broker,
    connect: Connect,
    changelog: TopicPartition,
    out: TopicPartition,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S1: a late end of the old epoch is refused. Nothing is written, and no transaction is repeated."""
    caplog.set_level("INFO", "grete.kafka")
    monkeypatch.setattr(transactional_writer, "may_come_again", lambda seconds: seconds > 0)
    log = connect()
    for value in (b"1", b"2", b"3"):
        assert not commit(log, changelog, value, [record(out, value)]).fenced
    assert visible(kafka_broker, out) == [b"1", b"2", b"3"]
    renewed = [each for each in caplog.records if "has a new epoch, after" in each.getMessage()]
    assert len(renewed) == 2  # none before it is needed


@pytest.mark.kafka
def test_a_rival_that_has_not_claimed_starts_again(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition
) -> None:
    """C5: it has taken the transactional id over and claims later: the holder goes on, and the rival is not fenced."""
    log, rival = connect(), connect()
    commit(log, changelog, b"one", [record(out, b"1")])
    rival._transactions[changelog]._writer._take_over()
    assert not commit(log, changelog, b"two", [record(out, b"2")]).fenced
    rival.send(0, -1, changelog, b"claim", sync=True)
    assert ended(rival)[0].fenced  # the task finds no newer claim behind this, and starts again
    with pytest.raises(TransientError, match="start again"):
        rival.send(0, -1, changelog, b"claim", sync=True)
    assert visible(kafka_broker, out) == [b"1", b"2"]


@pytest.mark.kafka
@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.PRODUCER_FENCED])
def test_who_has_claimed_keeps_it(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition, unlucky: Any, code: int
) -> None:
    """S1: who takes a new epoch looks whether another has claimed, and then writes nothing more."""
    log, rival = connect(), connect()
    commit(log, changelog, b"one", [record(out, b"1")])
    rival.send(0, -1, changelog, b"claim", sync=True)
    ended(rival)
    unlucky.code, unlucky.asks = code, False
    assert commit(log, changelog, b"two", [record(out, b"2")]).fenced
    assert visible(kafka_broker, out) == [b"1"]


@pytest.mark.kafka
def test_a_topic_that_brokers_do_not_know_for_a_moment_is_looked_for_again(
    kafka_broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: a broker that is back after an outage may not know its topics yet. One that stays unknown is named."""
    _, reading, _ = split_options(kafka_broker.bootstrap, "g", {})
    at, asked = TopicPartition(f"{name}.back", 0), list[int]()
    with closing(KafkaLog(kafka_broker.bootstrap)) as log:

        def go_on() -> None:
            if not asked:
                log.create_topic(at.topic, 1, plain=True)
            asked.append(len(asked))

        assert read_tail(reading, Troubles(str), at, 0, 0, go_on) == []
    assert len(asked) > 1
    monkeypatch.setattr(tail, "SHORT_S_MAX", 0.0)
    with pytest.raises(ConfigError, match="there is no such topic or partition"):
        read_tail(reading, Troubles(str), TopicPartition(f"{name}.never", 0), 0, 0, lambda: None)


@pytest.mark.kafka
def test_a_transaction_that_was_split_halts(
    kafka_broker: Broker, connect: Connect, changelog: TopicPartition, out: TopicPartition, unlucky: Any
) -> None:
    """H045: a restart would hide what is lost or comes again. The successor that a person starts goes on."""
    log = connect()
    commit(log, changelog, b"one", [])
    unlucky.code, unlucky.asks = KafkaError.INVALID_TXN_STATE, False
    log.send(0, -1, changelog, b"two", sync=True, outputs=[ExternalRecord(out, b"k", b"2", 7)])
    with pytest.raises(Halted, match="ended in its middle by something else") as halted:
        ended(log)
    assert halted.value.code is HaltCode.TRANSACTION_SPLIT
    assert visible(kafka_broker, out) == []
    again = connect()
    for value in (b"claim", b"two"):
        assert not commit(again, changelog, value, [record(out, value)]).fenced
    assert visible(kafka_broker, out) == [b"claim", b"two"]


@pytest.mark.kafka
def test_a_command_that_was_started_twice_sends_nothing_twice(
    kafka_broker: Broker, name: str, out: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command takes a new epoch behind a slow end. If another one has gone on from there, this one stops."""
    monkeypatch.setattr(whole_writer, "may_come_again", lambda seconds: seconds > 0)
    with closing(KafkaLog(kafka_broker.bootstrap)) as log:
        log.create_topic(out.topic, 1, plain=True)
        first = log.open_metadata(name, transactional=f"{name}.redrive")
        for value in (b"1", b"2"):
            first.produce_with_meta([record(out, value)], {"redriven/x/0": value})
        log.open_metadata(name).produce_with_meta([], {"pin": b"of a worker"})  # changes nothing
        first.produce_with_meta([record(out, b"3")], {"redriven/x/0": b"3"})
        second = log.open_metadata(name, transactional=f"{name}.redrive")
        second.produce_with_meta([record(out, b"4")], {"redriven/x/1": b"4"})
        with pytest.raises(Fenced, match="started elsewhere"):
            first.produce_with_meta([record(out, b"5")], {"redriven/x/0": b"5"})
    assert visible(kafka_broker, out) == [b"1", b"2", b"3", b"4"]
