"""Writing plain records in transactions, one after the other, for a command: each is there as a whole or not at all."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from framework.errors import Fenced, TransientError
from framework.logs.kafka.config import transactional
from framework.logs.kafka.errors import Troubles, failed
from framework.logs.kafka.producer import hand_over
from framework.ports import ExternalRecord

SLICE_S = 0.5  # of a call that waits for the broker, and is resumed: signal handlers run in between
ANSWER_S_MAX = 60.0  # a broker that restarts or elects a leader answers well within
ABORT_S_MAX = 4.0  # at the end: else the broker aborts it by its time-out

_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class WholeWriter:
    """One transactional id. Who takes it over has the older holder's open transaction aborted, and fences it."""

    def __init__(self, config: dict[str, Any], troubles: Troubles, transactional_id: str) -> None:
        """Take the id over. ``config`` is the plain producer's. Raises ConfigError, LogAway, TransientError."""
        self.id = transactional_id
        self._troubles = troubles
        self._sent: Sequence[ExternalRecord] = ()  # which of them is refused the broker does not tell
        self._producer: Producer = troubles.made(Producer, transactional(config, transactional_id))
        self._call(self._producer.init_transactions, "taking over")

    def write(self, records: Sequence[ExternalRecord]) -> None:
        """Return when all records are committed. Raises Fenced, or what they were refused with: none is there."""
        try:
            self._sent = records
            self._call(lambda _: self._producer.begin_transaction(), "beginning")
            taken = 0
            while taken < len(records):
                try:
                    taken += hand_over(self._producer, records[taken:], repeat(None))
                except BufferError:
                    self._producer.poll(SLICE_S)
                except KafkaException as error:
                    at = records[taken].partition
                    doing = f"sending to {at}, in a transaction of {self.id}"
                    raise failed(error, doing, sent=(records[taken],)) from error
            self._call(self._producer.commit_transaction, "committing")
        except BaseException:
            with suppress(KafkaException):
                self._producer.abort_transaction(ABORT_S_MAX)
            raise

    def _call(self, function: Callable[[float], None], doing: str) -> None:
        """Call until it is done or has failed."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                return function(SLICE_S)
            except KafkaException as error:
                if error.args[0].code() in _FENCED:
                    raise Fenced(f"{self.id}: the same command was started elsewhere; this one stops") from error
                if not error.args[0].retriable():
                    raise failed(error, f"{doing}, in a transaction of {self.id}", sent=self._sent) from error
                if self._troubles.refused is not None:
                    raise failed(KafkaException(self._troubles.refused), "waiting for the broker") from error
                if time.monotonic() > deadline:
                    raise TransientError(
                        f"{doing}, in a transaction of {self.id}: no answer for {ANSWER_S_MAX:.0f} s: is the broker up?"
                    ) from error
