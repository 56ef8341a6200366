"""The tail of a partition, read after a new epoch of the transactional id was taken (C4)."""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from grete.errors import TransientError
from grete.logs.kafka.client.errors import AWAY, UNKNOWN, Troubles, failed
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.kafka.write.producer import append_time
from grete.protocol.ids import TopicPartition

SLICE_S = 0.5  # of a call that waits for the broker: in between the caller looks whether to go on
STEP_S = 0.02  # of waiting for messages that may come
STUCK_S = 10.0  # in which a client gets nothing of what is there: another one is tried
SHORT_S_MAX = 60.0  # a broker that is back, or is a new leader, knows its topics by then, and how far the log is


class TailRow(NamedTuple):
    """A message there."""

    key: bytes | None
    value: bytes
    offset: int
    append_time_ms: int


def read_tail(
    config: ClientConfig,
    troubles: Troubles,
    partition: TopicPartition,
    begin: int,
    seconds: float,
    go_on: Callable[[], None],
) -> list[TailRow]:
    """Return the committed messages from ``begin`` on; where there are none, after ``seconds`` of looking.

    The end is asked for first: a broker answers that only once it knows how far the log was before it became the
    leader. ``go_on`` raises where the caller is to stop.
    """
    deadline = time.monotonic() + seconds
    while True:
        with closing(troubles.made(Consumer, config)) as consumer:
            rows = _read(consumer, partition, begin, deadline, go_on)
        if rows is not None:
            return rows


def _read(
    consumer: Consumer, partition: TopicPartition, begin: int, deadline: float, go_on: Callable[[], None]
) -> list[TailRow] | None:
    """Return the messages once there are some, none after ``deadline``; None if the client is stuck."""
    while True:
        rows = _rows(consumer, partition, begin, _end(consumer, partition, begin, go_on), go_on)
        if rows is None or rows or time.monotonic() >= deadline:
            return rows
        time.sleep(STEP_S)
        go_on()


def _end(consumer: Consumer, partition: TopicPartition, begin: int, go_on: Callable[[], None]) -> int:
    """Return the end of what is committed. What was acknowledged before ``begin`` is below it."""
    deadline = time.monotonic() + SHORT_S_MAX
    end = -1
    while end < begin:
        late = time.monotonic() > deadline
        try:
            end = _ask(consumer, partition, in_vain=late)
        except KafkaException as error:
            if error.args[0].code() not in AWAY:
                raise failed(error, f"asking where {partition} ends") from error
            deadline, late = time.monotonic() + SHORT_S_MAX, False
            _find_leader(consumer, partition.topic)
        go_on()
        if end < begin:
            if late:
                raise TransientError(
                    f"{partition} ends at {end}, before {begin}, where the last transaction ended: start again",
                    partition=partition,
                )
            time.sleep(STEP_S)
    return end


def _find_leader(consumer: Consumer, topic: str) -> None:
    """Let the client find out who leads a topic: one that reads nothing goes on asking a leader that is dead."""
    with suppress(KafkaException):
        consumer.list_topics(topic, timeout=SLICE_S)


def _ask(consumer: Consumer, partition: TopicPartition, *, in_vain: bool) -> int:
    """Return the end, -1 where the topic is not known for now, unless it was asked for ``in_vain`` for long."""
    try:
        end: int = consumer.get_watermark_offsets(KafkaPartition(*partition), timeout=SLICE_S, cached=False)[1]
    except KafkaException as error:
        if error.args[0].code() not in UNKNOWN or in_vain:
            raise
        consumer.list_topics(partition.topic, timeout=SLICE_S)  # so the client looks for it; raises if none answers
        return -1
    return end


def _rows(
    consumer: Consumer, partition: TopicPartition, begin: int, end: int, go_on: Callable[[], None]
) -> list[TailRow] | None:
    """Return the messages up to ``end``, None if the client gets nothing more for STUCK_S."""
    rows: list[TailRow] = []
    position, unknown_s, last_s = begin, 0.0, time.monotonic()
    if position < end:
        consumer.assign([KafkaPartition(*partition, position)])
    while position < end:
        message = consumer.poll(SLICE_S)
        go_on()
        if message is None:
            if time.monotonic() - last_s > STUCK_S:
                return None
            continue
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            last_s = time.monotonic()
        if error is None:
            row = TailRow(message.key(), message.value() or b"", message.offset() or 0, append_time(message))
            rows.append(row)
            position = row.offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            position = message.offset() or position  # behind aborted messages and markers
        elif error.code() in UNKNOWN and time.monotonic() < (unknown_s := unknown_s or time.monotonic()) + SHORT_S_MAX:
            continue
        elif error.code() not in AWAY:
            raise failed(KafkaException(error), f"reading {partition} from {begin}")
    return rows
