"""Writing to Kafka: every message's fate is known before anything is built on it (A7), and nothing is dropped (B1)."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import itemgetter, length_hint
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from grete.api.topics.reader import OUTPUT
from grete.errors import ConfigError, FrameworkError, TransientError
from grete.logs.kafka.client.errors import Troubles, failed, failure
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.ports import Delivery, ExternalRecord
from grete.protocol.errors import DecodeError
from grete.protocol.frames import decode_headers, encode_headers
from grete.protocol.ids import TopicPartition

REASON_S_MAX = 0.5  # of waiting for librdkafka to say why it has given up
ANSWER_S = 0.5  # of waiting for a first answer: signal handlers run in between
HANDED_MAX = 500  # records given to librdkafka in one go: a fraction of a millisecond in which nothing else runs

_VALUE_AT = len(encode_headers([(OUTPUT, b"")]))  # each output of a deterministic task has this header, seldom others
_NAMED = encode_headers([(OUTPUT, b"")])[:-4]  # before the length of its value

_GIVEN_UP = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}

Callback = Callable[[KafkaError | None, Message], None]
_Pairs = Sequence[tuple[str, bytes | None]]
_QueuedRecords = tuple[Sequence[ExternalRecord], Sequence[Callback | None]]


class _Group:
    """Records that share one delivery. ``left``: partitions whose last one is on its way, ``ends``: of the others."""

    __slots__ = ("ends", "left", "owner", "records", "token")

    def __init__(self, owner: int, token: int, records: Sequence[ExternalRecord], left: int) -> None:
        self.owner, self.token, self.left = owner, token, left
        self.records = records  # which one was refused the broker does not tell
        self.ends: list[tuple[TopicPartition, int]] = []


class KafkaWriter:
    """Sends queue up here; ``poll`` hands them to librdkafka in their order and returns what became of them."""

    def __init__(self, config: ClientConfig, troubles: Troubles) -> None:
        """Connect in the background."""
        self._producer: Producer = troubles.made(Producer, config)
        self._queue: deque[_QueuedRecords] = deque()
        self._last: tuple[list[ExternalRecord], list[Callback | None]] = [], []  # of the queue, if it still is there
        self._deliveries: list[Delivery] = []
        self._failure: FrameworkError | None = None
        self._vague = False  # the failure is that of a message given up because of another one
        self._unanswered = 0
        self._full = -1  # messages that librdkafka held when it had no room for more

    def answers(self) -> bool:
        """Return whether a broker has answered, once or within a moment."""
        try:
            answered = bool(self._producer.cluster_id(timeout=ANSWER_S))
        except KafkaException:
            answered = False
        self._serve(0)  # for its errors
        if self._failure is not None:  # a fatal one
            raise self._failure
        return answered

    def send(self, owner: int, token: int, partition: TopicPartition, value: bytes) -> None:
        """Queue an internal message; the log gives it its time. Those of a checkpoint are handed over together."""
        if not (self._queue and self._queue[-1] is self._last and len(self._last[0]) < HANDED_MAX):
            self._last = [], []
            self._queue.append(self._last)
        records, callbacks = self._last
        records.append(ExternalRecord(partition, None, value, 0))
        callbacks.append(partial(self._sent, owner, token))

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Queue plain records with one delivery for all of them.

        The last one of each partition speaks for those before it (port contract 1): the broker takes nothing behind a
        gap in a producer's sequence, and librdkafka, which is told to be gapless, stops for good where it makes one.
        """
        if not records:
            self._deliveries.append(Delivery(owner, token, -1, time.time_ns() // 1_000_000))
        last = {record[0]: place for place, record in enumerate(records)}
        callback = partial(self._grouped, _Group(owner, token, records, len(last)))
        callbacks: list[Callback | None] = [None] * len(records)
        for place in last.values():
            callbacks[place] = callback
        for start in range(0, len(records), HANDED_MAX):
            stop = start + HANDED_MAX
            self._queue.append((records[start:stop], callbacks[start:stop]))

    @property
    def stuck(self) -> bool:
        """Whether librdkafka had no room for all that was to be handed over."""
        return bool(self._queue)

    @property
    def waits(self) -> bool:
        """Whether a delivery is still to come."""
        return bool(self._queue) or self._unanswered > 0

    def poll(self) -> list[Delivery]:
        """Hand over what is queued, return what became known. Raises what a message failed with."""
        queue = self._queue
        self._serve(0)
        while queue and self._failure is None:
            records, callbacks = queue[0]
            try:
                taken = hand_over(self._producer, records, callbacks)
            except BufferError:
                self._full = len(self._producer)
                break  # stays queued; the tasks see no delivery and stop reading (B1)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._FATAL and self._earlier_failed():
                    break
                first = records[0]
                raise failed(error, self._what(first.partition, first.value), sent=(first,)) from error
            queue.popleft()
            self._full = -1
            self._unanswered += taken - callbacks[:taken].count(None)
            if taken < len(records):
                queue.appendleft((records[taken:], callbacks[taken:]))
        self._serve(0)
        if self._failure is not None:
            if self._vague:
                self._serve(REASON_S_MAX)
            raise self._failure
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    @property
    def known(self) -> bool:
        """Whether there is something to poll for: an answer, or room for much of what is still queued."""
        self.wait(0)
        return bool(self._deliveries or self._failure or (self._queue and len(self._producer) <= self._full // 2))

    def wait(self, seconds: float) -> None:
        """Wait for a delivery, unless there is something to poll for."""
        if not (self._deliveries or self._failure):
            self._serve(seconds)

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
            if self._failure is None or self._vague:
                self._failure, self._vague = failed(error, "sending"), False

    def _earlier_failed(self) -> bool:
        """Wait for what an earlier message has failed with: that says why librdkafka takes no more."""
        self._serve(REASON_S_MAX)
        return self._failure is not None

    def _what(self, partition: TopicPartition, value: bytes | None) -> str:
        return f"sending {len(value or b'')} bytes to {partition}"

    def _answered(
        self, error: KafkaError | None, message: Message, sent: Sequence[ExternalRecord] | None = None
    ) -> int | None:
        """Return the offset of a message that the broker has, else None: then what it failed with is noted.

        ``sent``: the records that it speaks for; None: itself.
        """
        self._unanswered -= 1
        offset = message.offset()
        if error is not None and (self._failure is None or self._vague):
            self._vague = error.code() in _GIVEN_UP
            partition, value = _partition_of(message), message.value()
            own = [ExternalRecord(partition, None, value, 0)]
            there = own if sent is None else [each for each in sent if each.partition == partition]
            self._failure = failure(error, self._what(partition, value), sent=there)
        elif error is None and offset is None and self._failure is None:
            self._failure = unknown_offset(_partition_of(message))
        return offset if error is None else None

    def _sent(self, owner: int, token: int, error: KafkaError | None, message: Message) -> None:
        offset = self._answered(error, message)
        if offset is not None:
            self._deliveries.append(Delivery(owner, token, offset, append_time(message)))

    def _grouped(self, group: _Group, error: KafkaError | None, message: Message) -> None:
        offset = self._answered(error, message, group.records)
        if offset is not None:
            group.left -= 1
            group.ends.append((_partition_of(message), offset + 1))
            if not group.left:
                ends = tuple(group.ends)
                self._deliveries.append(Delivery(group.owner, group.token, offset, append_time(message), ends=ends))


def _partition_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "?", message.partition() or 0)


def hand_over(producer: Producer, records: Sequence[ExternalRecord], callbacks: Iterable[Callback | None]) -> int:
    """Give records to librdkafka in their order; return how many it took: those before the first that it refuses.

    Raises for the first record only: BufferError (no room now), KafkaException, ConfigError (its headers).
    """
    partitions, keys, values, times, cells = zip(*records, strict=True)
    produce: Any = producer.produce  # its types do not tell that all can be given by place
    waiting = iter(values)
    # Kafka's clients read the time 0 as "now": 1970 and a millisecond is nearer to what was meant
    stamps = [time_ms or 1 for time_ms in times] if 0 in times else times
    names, numbers = map(itemgetter(0), partitions), map(itemgetter(1), partitions)
    columns: list[Iterable[Any]] = [names, waiting, keys, numbers, callbacks, repeat(None), stamps]
    if any(cells):
        columns.append(_headers(partitions, cells))
    try:
        deque(map(produce, *columns), maxlen=0)  # a call in C for each
    except (BufferError, KafkaException, ConfigError):
        taken = len(records) - length_hint(waiting) - 1
        if not taken:
            raise
        return taken
    return len(records)


def _headers(partitions: Sequence[TopicPartition], cells: Sequence[bytes | None]) -> Iterable[_Pairs]:
    """Return each record's headers as librdkafka takes them. What it yields raises ConfigError."""
    if None not in cells and all(map(bytes.startswith, cells, repeat(_NAMED))):  # type: ignore[arg-type]  # none is None
        return [[(OUTPUT, cell[_VALUE_AT:])] for cell in cells]  # type: ignore[index]  # a quarter of the time
    return map(_pairs, partitions, cells)


def _pairs(partition: TopicPartition, cell: bytes | None) -> _Pairs:
    if cell is None:
        return []
    try:
        return list(decode_headers(cell))
    except DecodeError as error:
        raise ConfigError(
            f"record for {partition}: headers must be a cell of encode_headers", partition=partition
        ) from error


def unknown_offset(partition: TopicPartition) -> TransientError:
    """Return the error of a message that is in the log, at an offset that the client was not told.

    A broker that has it already, because it was sent twice, need not say where. A task needs to know it: commits name
    offsets. A new process reads from the log what is there.
    """
    return TransientError(
        f"the broker acknowledged a message to {partition} and did not say at which offset it is: start again; the "
        "worker then reads from the log what has arrived",
        partition=partition,
    )


def append_time(message: Message) -> int:
    """Return the time at which the log appended it; now, if the topic keeps the record's own time instead."""
    kind, time_ms = message.timestamp()
    return time_ms if kind == TIMESTAMP_LOG_APPEND_TIME else time.time_ns() // 1_000_000
