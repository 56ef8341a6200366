"""Writing a sink's changelog in transactions: a checkpoint's data, commit and outputs become visible at once (S1).

One producer with a transactional id of its own for each changelog partition. librdkafka's transaction calls block, so a
thread makes them; the log's other work goes on meanwhile. A transaction is begun when all that goes into it is at hand,
so it lasts as long as its messages take to the broker.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from queue import SimpleQueue
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from framework.errors import TransientError
from framework.logs.kafka.config import transactional
from framework.logs.kafka.errors import Troubles, failed
from framework.logs.kafka.producer import HANDED_MAX, Callback, append_time, hand_over, unknown_offset
from framework.ports import Delivery, ExternalRecord
from protocol.ids import TopicPartition

SLICE_S = 0.5  # of a call that waits for the broker, and is resumed: in between the thread sees that the log was closed
ROOM_S = 0.05  # of waiting for room in librdkafka's queue
ABORT_S_MAX = 4.0  # at the end: else the broker aborts it by its time-out
CLAIM_S_MAX = 1.0  # who takes a transactional id over sends its claim next
CLOSE_S_MAX = 5.0  # above ABORT_S_MAX: the thread ends by itself

logger = logging.getLogger("grete.kafka")

_FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,  # the coordinator forgot the id: it was idle for a week
    KafkaError.UNKNOWN,  # what Kafka 4.1 may answer to the end of a transaction while it gives the id to another
}


class _Transaction(NamedTuple):
    """What is committed together: messages of the changelog as (owner, token, value), and outputs."""

    messages: Sequence[tuple[int, int, bytes]]
    outputs: Sequence[ExternalRecord]

    def records(self, partition: TopicPartition) -> list[ExternalRecord]:
        """Return all of it as records; ``partition``: that of the changelog."""
        return [*(ExternalRecord(partition, None, value, 0) for *_, value in self.messages), *self.outputs]


class Transactions:
    """The changelog partition of one sink task. The first transaction, its claim, takes the transactional id over."""

    def __init__(self, config: dict[str, Any], troubles: Troubles, partition: TopicPartition) -> None:
        """Connect in the background. ``config`` is the plain producer's. Raises ConfigError."""
        self.partition = partition
        self.id = f"{partition.topic}-{partition.partition}"
        self._troubles = troubles
        self._producer: Producer = troubles.made(Producer, transactional(config, self.id))
        self._open: list[tuple[int, int, bytes]] = []  # sent, waiting for the message that ends the transaction
        self._queued: list[_Transaction] = []  # complete, to be handed to the thread by ``poll``
        self._jobs: SimpleQueue[_Transaction | None] = SimpleQueue()
        self._unanswered = 0
        self._deliveries: deque[Delivery] = deque()
        self._failure: Exception | None = None
        self._fenced = False
        self._under_way: _Transaction | None = None  # which of its messages is refused the broker does not tell
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"transactions {self.id}", daemon=True)
        self._thread.start()

    # --- for the log's thread ---

    def send(self, owner: int, token: int, value: bytes, outputs: Sequence[ExternalRecord], *, ends: bool) -> None:
        """Queue a message; with one that ``ends`` a transaction, that one can be committed.

        Raises TransientError once ``poll`` has told that a transaction was refused. Until then a message is taken and
        lost: the task is to look for a newer claim, which says whether it is fenced, and not to fail here (C5).
        """
        if self._fenced:
            raise TransientError(
                f"{self.partition}: transactional id {self.id} was taken over: start again", partition=self.partition
            )
        self._open.append((owner, token, value))
        if ends:
            self._queued.append(_Transaction(self._open, outputs))
            self._open = []

    def poll(self) -> list[Delivery]:
        """Hand over complete transactions; return what became of earlier ones. Raises what one failed with (C4)."""
        for transaction in self._queued:
            self._unanswered += 1
            self._jobs.put(transaction)
        self._queued = []
        found = []
        while self._deliveries:
            found.append(self._deliveries.popleft())
        self._unanswered -= sum(delivery.trailing > 0 or delivery.fenced for delivery in found)
        self._fenced |= any(delivery.fenced for delivery in found)
        if self._failure is not None and not found:
            raise self._failure
        return found

    @property
    def waits(self) -> bool:
        """Whether the end of a transaction is still to come."""
        return self._unanswered > 0

    @property
    def known(self) -> bool:
        """Whether there is something to poll for."""
        return bool(self._deliveries) or self._failure is not None

    def give_up(self) -> None:
        """Commit nothing more; the next claim, or the transaction's time-out, aborts what is open."""
        self._closing.set()
        self._jobs.put(None)

    def close(self) -> None:
        """Wait for the end of what was given up."""
        self._thread.join(CLOSE_S_MAX)

    # --- the thread ---

    def _run(self) -> None:
        begun = False
        while (transaction := self._jobs.get()) is not None:
            try:
                if not begun:
                    begun = True
                    self._call(self._producer.init_transactions, "taking over")
                self._commit(transaction)
            except _Refusal:
                logger.info("transactional id %s is another process's now, or its transaction took too long", self.id)
                self._closing.wait(CLAIM_S_MAX)
                owner, token, _ = transaction.messages[-1]
                self._deliveries.append(Delivery(owner, token, -1, time.time_ns() // 1_000_000, fenced=True))
                return
            except Exception as error:  # noqa: BLE001  # the log's thread raises it
                self._abort()
                self._failure = error
                return

    def _commit(self, transaction: _Transaction) -> None:
        """Begin, hand all over, commit; then report each message of the changelog, the last with the marker behind it.

        A message that fails makes the commit fail, so the outputs need no callback.
        """
        placed: list[Delivery] = []
        self._under_way = transaction
        self._call(lambda _: self._producer.begin_transaction(), "beginning")
        for owner, token, value in transaction.messages:
            record = ExternalRecord(self.partition, None, value, 0)
            self._hand_over((record,), partial(_placed, placed, owner, token))
        self._hand_over(transaction.outputs, None)
        self._call(self._producer.commit_transaction, "committing")
        self._producer.poll(0)
        if len(placed) < len(transaction.messages):
            raise unknown_offset(self.partition)
        placed[-1] = placed[-1]._replace(trailing=1)
        self._deliveries.extend(placed)

    def _hand_over(self, records: Sequence[ExternalRecord], callback: Callback | None) -> None:
        producer, start = self._producer, 0
        while start < len(records):
            some = records[start : start + HANDED_MAX]
            try:
                start += hand_over(producer, some, repeat(callback))
            except BufferError:
                producer.poll(ROOM_S)
                self._stop_if_closing()
            except KafkaException as error:
                what = f"sending {len(some[0].value or b'')} bytes to {some[0].partition}"
                raise self._failed(error, what) from error

    def _call(self, function: Callable[[float], None], doing: str) -> None:
        """Call until it is done or has failed; how long it may take in all is the task's to say (B1)."""
        while True:
            try:
                return function(SLICE_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise self._failed(error, doing) from error
            self._stop_if_closing()

    def _stop_if_closing(self) -> None:
        if self._closing.is_set():
            raise TransientError(f"{self.partition}: closed within a transaction", partition=self.partition)
        if self._troubles.refused is not None:
            raise self._failed(KafkaException(self._troubles.refused), "waiting for the broker")

    def _failed(self, exception: KafkaException, doing: str) -> Exception:
        """Return what to raise: who was fenced says so, all else ends the process (C4)."""
        error: KafkaError = exception.args[0]
        if error.code() in _FENCED:
            return _Refusal()
        sent = () if self._under_way is None else self._under_way.records(self.partition)
        return failed(exception, f"{doing}, in a transaction of {self.id}", sent=sent)

    def _abort(self) -> None:
        """End the open transaction, as an abort.

        Readers need not wait for its time-out; where that fails, the next claim aborts it.
        """
        with suppress(KafkaException):
            self._producer.abort_transaction(ABORT_S_MAX)


class _Refusal(Exception):
    """The broker says that the transactional id has a new holder, or that the transaction has outlived its time-out."""


def _placed(placed: list[Delivery], owner: int, token: int, error: KafkaError | None, message: Message) -> None:
    """Note the offset of a message of the changelog; one that failed fails the commit."""
    offset = message.offset()
    if error is None and offset is not None:
        placed.append(Delivery(owner, token, offset, append_time(message)))
