"""Writing to Kafka: every message's fate is known before anything is built on it (A7), and nothing is dropped (B1)."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from framework.errors import ConfigError, FrameworkError
from framework.logs.kafka.failures import Troubles, failed, failure
from framework.ports import Delivery, ExternalRecord
from protocol.errors import DecodeError
from protocol.frames import decode_headers
from protocol.ids import TopicPartition

REASON_S_MAX = 0.5

Callback = Callable[[KafkaError | None, Message], None]
_Queued = tuple[ExternalRecord, Callback]


class _Group:
    """Records that share one delivery."""

    __slots__ = ("left", "owner", "token")

    def __init__(self, owner: int, token: int, left: int) -> None:
        self.owner, self.token, self.left = owner, token, left


class Writer:
    """Sends queue up here; ``poll`` hands them to librdkafka in their order and returns what became of them."""

    def __init__(self, config: dict[str, Any], troubles: Troubles) -> None:
        """Connect in the background."""
        self._producer: Producer = troubles.made(Producer, config)
        self._queue: deque[_Queued] = deque()
        self._deliveries: list[Delivery] = []
        self._failure: FrameworkError | None = None
        self._unanswered = 0

    def answers(self, seconds: float) -> bool:
        """Return whether a broker has answered in time."""
        try:
            answered = bool(self._producer.cluster_id(timeout=seconds))
        except KafkaException:
            answered = False
        self._serve(0)  # hear of errors
        if self._failure is not None:  # a fatal one
            raise self._failure
        return answered

    def send(self, owner: int, token: int, partition: TopicPartition, value: bytes) -> None:
        """Queue an internal message; the log gives it its time."""
        self._queue.append((ExternalRecord(partition, None, value, 0), partial(self._sent, owner, token)))

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Queue plain records with one delivery for all of them."""
        if not records:
            self._deliveries.append(Delivery(owner, token, -1, time.time_ns() // 1_000_000))
        callback = partial(self._grouped, _Group(owner, token, len(records)))
        self._queue.extend((record, callback) for record in records)

    @property
    def waits(self) -> bool:
        """Whether a delivery is still to come."""
        return bool(self._queue) or self._unanswered > 0

    def poll(self) -> list[Delivery]:
        """Hand over what is queued, return what became known. Raises what a message failed with."""
        queue = self._queue
        self._serve(0)
        while queue and self._failure is None:
            record, callback = queue[0]
            try:
                hand_over(self._producer, record, callback)
            except BufferError:
                break  # stays queued; the tasks see no delivery and stop reading (B1)
            except KafkaException as error:
                raise failed(error, self._what(record.partition, record.value)) from error
            queue.popleft()
            self._unanswered += 1
        self._serve(0)
        if self._failure is not None:
            raise self._failure
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def wait(self, seconds: float) -> bool:
        """Wait for a delivery; return whether there is something to poll for."""
        if not (self._deliveries or self._failure):
            self._serve(seconds)
        return bool(self._deliveries) or self._failure is not None

    def close(self) -> None:
        """Give up what is queued; what is on its way may arrive or not."""
        self._queue.clear()
        self._producer.purge(blocking=False)
        self._serve(0)

    def _serve(self, seconds: float) -> None:
        """Let librdkafka report. A fatal error comes ahead of the message's own, which says more: wait for that."""
        try:
            self._producer.poll(seconds)
        except KafkaException as error:
            self._producer.poll(REASON_S_MAX)
            self._failure = self._failure or failed(error, "sending")

    def _what(self, partition: TopicPartition, value: bytes | None) -> str:
        return f"sending {len(value or b'')} bytes to {partition}"

    def _answered(self, error: KafkaError | None, message: Message) -> bool:
        self._unanswered -= 1
        if error is not None and self._failure is None:
            partition = TopicPartition(message.topic() or "?", message.partition() or 0)
            self._failure = failure(error, self._what(partition, message.value()))
        return error is None

    def _sent(self, owner: int, token: int, error: KafkaError | None, message: Message) -> None:
        if self._answered(error, message):
            self._deliveries.append(Delivery(owner, token, message.offset() or 0, append_time(message)))

    def _grouped(self, group: _Group, error: KafkaError | None, message: Message) -> None:
        if self._answered(error, message):
            group.left -= 1
            if not group.left:
                delivery = Delivery(group.owner, group.token, message.offset() or 0, append_time(message))
                self._deliveries.append(delivery)


def hand_over(producer: Producer, record: ExternalRecord, callback: Callback | None) -> None:
    """Give a record to librdkafka. Raises BufferError (no room now), KafkaException, ConfigError (its headers)."""
    (topic, number), key, value, time_ms, headers = record
    # Kafka's clients read the time 0 as "now": 1970 and a millisecond is nearer to what was meant
    if headers is None:
        producer.produce(topic, value, key, number, callback, timestamp=time_ms or 1)
        return
    try:
        pairs: Any = list(decode_headers(headers))
    except DecodeError as error:
        raise ConfigError(f"record for {record.partition}: headers must be a cell of encode_headers") from error
    producer.produce(topic, value, key, number, callback, timestamp=time_ms or 1, headers=pairs)


def append_time(message: Message) -> int:
    """Return when the log appended it; a topic of the user's may keep the record's own time instead: then, now."""
    kind, time_ms = message.timestamp()
    return time_ms if kind == TIMESTAMP_LOG_APPEND_TIME else time.time_ns() // 1_000_000
