"""Writing a sink's changelog in transactions: a checkpoint's data, commit and outputs become visible at once (S1).

librdkafka's transaction calls block, so a thread makes them, one for each changelog partition; the log's other work
goes on meanwhile.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue

from grete.errors import TransientError
from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.kafka.write.transactional_writer import Transaction, TransactionalWriter, TransactionRefused
from grete.ports import Delivery, ExternalRecord
from grete.protocol.ids import TopicPartition

CLOSE_S_MAX = 5.0  # above ABORT_S_MAX: the thread ends by itself

logger = logging.getLogger("grete.kafka")


class Transactions:
    """The changelog partition of one sink task. The first transaction, its claim, takes the transactional id over."""

    def __init__(
        self, producer: ClientConfig, consumer: ClientConfig, troubles: Troubles, partition: TopicPartition
    ) -> None:
        """Connect in the background. ``producer`` and ``consumer`` are the plain ones' options. Raises ConfigError."""
        self._open: list[tuple[int, int, bytes]] = []  # sent, waiting for the message that ends the transaction
        self._queued: list[Transaction] = []  # complete, to be handed to the thread by ``poll``
        self._jobs: SimpleQueue[Transaction | None] = SimpleQueue()
        self._unanswered = 0
        self._deliveries: deque[Delivery] = deque()
        self._failure: Exception | None = None
        self._fenced = False
        self._closing = threading.Event()
        self._writer = TransactionalWriter(producer, consumer, troubles, partition, self._closing)
        self._thread = threading.Thread(target=self._run, name=f"transactions {self.id}", daemon=True)
        self._thread.start()

    @property
    def id(self) -> str:
        """The transactional id."""
        return self._writer.id

    # --- for the log's thread ---

    def send(self, owner: int, token: int, value: bytes, outputs: Sequence[ExternalRecord], *, ends: bool) -> None:
        """Queue a message; with one that ``ends`` a transaction, that one can be committed.

        Raises TransientError once ``poll`` has told that a transaction was refused. Until then a message is taken and
        lost: the task is to look for a newer claim, which says whether it is fenced, and not to fail here (C5).
        """
        if self._fenced:
            partition = self._writer.partition
            raise TransientError(
                f"{partition}: transactional id {self.id} was taken over: start again", partition=partition
            )
        self._open.append((owner, token, value))
        if ends:
            self._queued.append(Transaction(self._open, outputs))
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
        while (transaction := self._jobs.get()) is not None:
            try:
                self._deliveries.extend(self._writer.settle(transaction))
            except TransactionRefused:
                logger.info("transactional id %s is another process's now", self.id)
                owner, token, _ = transaction.messages[-1]
                self._deliveries.append(Delivery(owner, token, -1, time.time_ns() // 1_000_000, fenced=True))
                return
            except Exception as error:  # noqa: BLE001  # the log's thread raises it
                self._writer.abort()
                self._failure = error
                return
