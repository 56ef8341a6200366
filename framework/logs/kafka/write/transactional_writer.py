"""One transaction after the other, for the changelog of one sink task: committed, and made known where it is not (C4).

A producer with a transactional id that is always the same. librdkafka's transaction calls block: they are made in
slices, so that their thread sees that the log was closed. A transaction is begun when all that goes into it is at hand,
so it lasts as long as its messages take to the broker.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from grete.errors import FrameworkError, Halted, LogAway, TransientError
from grete.halts import HaltCode
from grete.logs.kafka.client.config import transactional
from grete.logs.kafka.client.endings import TransactionOutcome, may_come_again, outcome, tells
from grete.logs.kafka.client.errors import Troubles, failed
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.kafka.write.producer import HANDED_MAX, Callback, append_time, hand_over, unknown_offset
from grete.logs.kafka.write.tail import TailRow, read_tail
from grete.ports import Delivery, ExternalRecord
from grete.protocol.ids import TopicPartition

SLICE_S = 0.5  # of a call that waits for the broker, and is resumed: in between the thread sees that the log was closed
FLUSH_S = 0.1  # of one call: the client's next step of 0.2 s would call back with an exception set
ROOM_S = 0.05  # of waiting for room in librdkafka's queue
ABORT_S_MAX = 4.0  # at the end: else the broker aborts it by its time-out
CLAIM_S_MAX = 1.0  # who takes a transactional id over sends its claim next
TRIES_MAX = 3  # of one transaction, where brokers answer: what they refuse three times they refuse for good

logger = logging.getLogger("grete.kafka")

_FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,  # the coordinator forgot the id: it was idle for a week
    KafkaError.UNKNOWN,  # what Kafka 4.1 may answer to the end of a transaction while it gives the id to another
}


class Transaction(NamedTuple):
    """One transaction: messages of the changelog as (owner, token, value), and outputs."""

    messages: Sequence[tuple[int, int, bytes]]
    outputs: Sequence[ExternalRecord]

    def records(self, partition: TopicPartition) -> list[ExternalRecord]:
        """Return all of it as records; ``partition``: that of the changelog."""
        return [*(ExternalRecord(partition, None, value, 0) for *_, value in self.messages), *self.outputs]


class TransactionalWriter:
    """Writes the changelog partition of one sink task. Only the thread that makes its transactions may use it."""

    def __init__(
        self,
        producer: ClientConfig,
        consumer: ClientConfig,
        troubles: Troubles,
        partition: TopicPartition,
        closing: threading.Event,
    ) -> None:
        """Connect in the background. ``producer`` and ``consumer`` are the plain ones' options. Raises ConfigError.

        Once ``closing`` is set, what waits for the broker raises TransientError.
        """
        self.partition = partition
        self.id = f"{partition.topic}-{partition.partition}"
        self._troubles = troubles
        self._config, self._reading = transactional(producer, self.id), consumer
        self._producer: Producer = troubles.made(Producer, self._config)
        self._epoch = False  # whether the producer has taken one
        self._doubtful = False  # an end may have been asked for twice: the next transaction needs a new epoch
        self._end: int | None = None  # of the changelog, behind the last transaction of this process
        self._under_way: Transaction | None = None  # which of its messages is refused the broker does not tell
        self._closing = closing

    def settle(self, transaction: Transaction) -> list[Delivery]:
        """Commit; return where each message of the changelog is, the last with the marker behind it.

        Where it is not known what became of it, make that known, and commit it again if it is not there (C4). Raises
        TransactionRefused, and what a person must see.
        """
        if not self._epoch:
            self._take_over()
        if self._doubtful:
            self._renew(())
        failures = 0
        while True:
            placed: list[Delivery] = []
            try:
                self._commit(transaction, placed)
                break
            except _Unknown as unknown:
                failures += not isinstance(unknown.error, LogAway)
                if failures >= TRIES_MAX:
                    raise unknown.error from unknown
                logger.info("a transaction of %s has failed or has an unknown outcome: %s", self.id, unknown.error)
                if found := self._made_known(transaction, placed, unknown):
                    placed = found
                    break
        self._end = placed[-1].offset + 2
        placed[-1] = placed[-1]._replace(trailing=1)
        return placed

    def _commit(self, transaction: Transaction, placed: list[Delivery]) -> None:
        """Begin, hand all over, wait until the broker has it, end it.

        A message that fails makes the end fail, so the outputs need no callback.
        """
        self._under_way = transaction
        self._call(lambda _: self._producer.begin_transaction(), "beginning")
        for owner, token, value in transaction.messages:
            record = ExternalRecord(self.partition, None, value, 0)
            self._hand_over((record,), partial(_placed, placed, owner, token))
        self._hand_over(transaction.outputs, None)
        self._flush()
        asked = time.monotonic()
        try:
            self._call(self._producer.commit_transaction, "committing")
        finally:
            self._doubtful = may_come_again(time.monotonic() - asked)
        self._producer.poll(0)
        if len(placed) < len(transaction.messages):
            raise _Unknown(unknown_offset(self.partition))

    def _made_known(
        self, transaction: Transaction, placed: Sequence[Delivery], unknown: "_Unknown"
    ) -> list[Delivery] | None:
        """Take a new epoch, and return where the transaction's messages are, None if they are not there."""
        if self._end is None and not placed:  # the claim, of which nothing is there: who has written is read behind it
            if unknown.fenced:
                raise TransactionRefused
            self._renew((), known=False)
            return None
        self._end = placed[0].offset if self._end is None else self._end
        if unknown.fenced and self._tail((), CLAIM_S_MAX):
            raise TransactionRefused
        return self._renew(transaction.messages)

    def _take_over(self) -> None:
        """Take an epoch with the producer that is there. A claim is what makes it known to others."""
        try:
            self._call(self._producer.init_transactions, "taking over")
        except _Unknown as unknown:
            raise (TransactionRefused() if unknown.fenced else unknown.error) from unknown
        self._epoch = True

    def _renew(self, messages: Sequence[tuple[int, int, bytes]], *, known: bool = True) -> list[Delivery] | None:
        """Take a new epoch, then look at what the changelog has behind what is ``known`` of it.

        Who has claimed it before keeps it: nothing more is written here.
        """
        began, former = time.monotonic(), [self._producer]
        self._producer = self._troubles.made(Producer, self._config)
        self._take_over()
        threading.Thread(target=_forget, args=[former], name=f"former {self.id}", daemon=True).start()
        self._doubtful = False
        own = [value for _, _, value in messages]
        rows = self._tail(own) if known else []
        logger.info("transactional id %s has a new epoch, after %.0f ms", self.id, 1_000 * (time.monotonic() - began))
        match outcome(own, [row.value for row in rows]):
            case TransactionOutcome.FOREIGN:
                raise TransactionRefused
            case TransactionOutcome.SPLIT:
                raise split(self.id, self.partition)
            case TransactionOutcome.ABSENT:
                return None
            case TransactionOutcome.THERE:
                pairs = zip(messages, rows, strict=True)
                return [Delivery(owner, token, at.offset, at.append_time_ms) for (owner, token, _), at in pairs]

    def _tail(self, own: Sequence[bytes], seconds: float = 0.0) -> list[TailRow]:
        """Return the messages behind the last transaction that tell anything, after that long at most."""
        assert self._end is not None
        rows = read_tail(self._reading, self._troubles, self.partition, self._end, seconds, self._stop_if_closing)
        return [row for row in rows if tells(own, row.value)]

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

    def _flush(self) -> None:
        """Wait until the broker has all that was handed over, or will not get it: the end must be timed alone."""
        while True:
            try:
                if not self._producer.flush(FLUSH_S):
                    return
            except KafkaException as error:  # a fatal one; what failed otherwise makes the end fail
                raise self._failed(error, "sending") from error
            self._stop_if_closing()

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
            raise failed(KafkaException(self._troubles.refused), f"waiting for the broker, for {self.id}")

    def _failed(self, exception: KafkaException, doing: str) -> Exception:
        """Return the error to raise: _Unknown where it passes by itself, else one that a person must see."""
        error: KafkaError = exception.args[0]
        if error.code() == KafkaError.INVALID_TXN_STATE:
            return split(self.id, self.partition)
        sent = () if self._under_way is None else self._under_way.records(self.partition)
        found = failed(exception, f"{doing}, in a transaction of {self.id}", sent=sent)
        fenced = error.code() in _FENCED
        return _Unknown(found, fenced=fenced) if fenced or isinstance(found, TransientError) else found

    def abort(self) -> None:
        """End the open transaction, as an abort.

        Readers need not wait for its time-out; where that fails, the next claim aborts it.
        """
        with suppress(KafkaException):
            self._producer.abort_transaction(ABORT_S_MAX)


class TransactionRefused(Exception):
    """Another process has the transactional id, or has written to the changelog: the task looks whether it claims."""


class _Unknown(Exception):
    """It is not known whether a transaction was committed, or it is known that it was not; what was the reason."""

    def __init__(self, error: FrameworkError, *, fenced: bool = False) -> None:
        """``fenced``: the broker says that the id has a new holder, or that the transaction outlived its time-out."""
        super().__init__(str(error))
        self.error, self.fenced = error, fenced


def split(transactional_id: str, partition: TopicPartition) -> Halted:
    """Return the error of a transaction that something else has ended in its middle."""
    return Halted(
        f"{partition}: a transaction of {transactional_id} was ended in its middle by something else: its first half "
        "is there, the other is not, or comes again. Compare the outputs of the last checkpoint; then start again. "
        "Does another producer use this transactional id, or did somebody end it by kafka-transactions.sh?",
        partition=partition,
        code=HaltCode.TRANSACTION_SPLIT,
    )


def _forget(former: list[Producer]) -> None:
    """Let go of a client: that may take seconds where its brokers are away."""
    former.pop().purge()


def _placed(placed: list[Delivery], owner: int, token: int, error: KafkaError | None, message: Message) -> None:
    """Note the offset of a message of the changelog; one that failed fails the commit."""
    offset = message.offset()
    if error is None and offset is not None:
        placed.append(Delivery(owner, token, offset, append_time(message)))
