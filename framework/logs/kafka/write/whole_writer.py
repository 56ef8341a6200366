"""Writing plain records in transactions, one after the other, for a command: each is there as a whole or not at all."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, repeat

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from grete.errors import Fenced, TransientError
from grete.logs.kafka.client.config import transactional
from grete.logs.kafka.client.endings import may_come_again
from grete.logs.kafka.client.errors import Troubles, failed
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.kafka.write.producer import hand_over
from grete.logs.kafka.write.tail import read_tail
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition

SLICE_S = 0.5  # of a call that waits for the broker, and is resumed: signal handlers run in between
ANSWER_S_MAX = 60.0  # a broker that restarts or elects a leader answers well within
FLUSH_S = 0.1  # of one call: the client's next step of 0.2 s would call back with an exception set
ABORT_S_MAX = 4.0  # at the end: else the broker aborts it by its time-out

_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class WholeWriter:
    """One transactional id. Who takes it over has the older holder's open transaction aborted, and fences it."""

    def __init__(
        self, producer: ClientConfig, consumer: ClientConfig, troubles: Troubles, transactional_id: str
    ) -> None:
        """Take the id over. The options are those of plain clients. Raises ConfigError, LogAway, TransientError."""
        self.id = transactional_id
        self._config, self._reading = transactional(producer, transactional_id), consumer
        self._doubtful = False  # an end may have been asked for twice: the next transaction needs a new epoch
        self._last: Message | None = None  # the last record of the last transaction: what says how far it is
        self._troubles = troubles
        self._sent: Sequence[ExternalRecord] = ()  # which of them is refused the broker does not tell
        self._producer: Producer = troubles.made(Producer, self._config)
        self._call(self._producer.init_transactions, "taking over")

    def write(self, records: Sequence[ExternalRecord]) -> None:
        """Wait until all records are committed. Raises Fenced, or the error of their refusal: none is there.

        The last record has a key by which another holder of the id would be known: up to a slash it is that of all
        its last records.
        """
        if self._doubtful:
            self._renew()
        try:
            self._sent = records
            self._call(lambda _: self._producer.begin_transaction(), "beginning")
            taken = 0
            while taken < len(records):
                try:
                    callbacks = chain(repeat(None, len(records) - taken - 1), (self._placed,))
                    taken += hand_over(self._producer, records[taken:], callbacks)
                except BufferError:
                    self._producer.poll(SLICE_S)
                except KafkaException as error:
                    at = records[taken].partition
                    doing = f"sending to {at}, in a transaction of {self.id}"
                    raise failed(error, doing, sent=(records[taken],)) from error
            self._call(self._flush, "sending")
            asked = time.monotonic()
            self._call(self._producer.commit_transaction, "committing")
            self._doubtful = may_come_again(time.monotonic() - asked)
        except BaseException:
            with suppress(KafkaException):
                self._producer.abort_transaction(ABORT_S_MAX)
            raise

    def _renew(self) -> None:
        """Take a new epoch, so that a late end of the last transaction is refused; then see that no other has written.

        Another holder of the id goes on from the last record that it found, so it is one like that.
        """
        self._producer = self._troubles.made(Producer, self._config)
        self._call(self._producer.init_transactions, "taking a new epoch")
        self._doubtful = False
        last = self._last
        if last is None:
            return
        at, key = TopicPartition(last.topic() or "", last.partition() or 0), last.key() or b""
        rows = read_tail(self._reading, self._troubles, at, (last.offset() or 0) + 1, 0, lambda: None)
        if any((row.key or b"").split(b"/")[0] == key.split(b"/")[0] for row in rows):
            raise self._fenced()

    def _flush(self, seconds: float) -> None:
        """Wait until the broker has all that was handed over. Raises KafkaException as a transaction's calls do."""
        if self._producer.flush(min(seconds, FLUSH_S)):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "records are on their way", retriable=True))

    def _placed(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._last = message

    def _fenced(self) -> Fenced:
        return Fenced(f"{self.id}: the same command was started elsewhere; this one stops")

    def _call(self, function: Callable[[float], None], doing: str) -> None:
        """Call until it is done or has failed."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                return function(SLICE_S)
            except KafkaException as error:
                if error.args[0].code() in _FENCED:
                    raise self._fenced() from error
                if not error.args[0].retriable():
                    raise failed(error, f"{doing}, in a transaction of {self.id}", sent=self._sent) from error
                if self._troubles.refused is not None:
                    raise failed(KafkaException(self._troubles.refused), "waiting for the broker") from error
                if time.monotonic() > deadline:
                    raise TransientError(
                        f"{doing}, in a transaction of {self.id}: no answer for {ANSWER_S_MAX:.0f} s: is the broker up?"
                    ) from error
