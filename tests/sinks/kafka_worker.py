"""A worker on Kafka that ends or stops itself at a named point of its first transaction with outputs.

Run as a script: job file, partition, directory, broker, file of Kafka options, point, signal. No hook in the framework
serves this: the producer is wrapped here, in the worker's own process.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from framework.cli.working import work
from framework.logs.kafka import transactions
from framework.logs.open import LogAddress

BEFORE, BEGUN, HALF, SENT, COMMITTED = "before begin", "begun", "half of it sent", "all sent", "committed"
POINTS = (BEFORE, BEGUN, HALF, SENT, COMMITTED)
FLUSH_S_MAX = 60.0


class WatchedProducer(Producer):
    """Sends itself the signal where it is told to."""

    point, number = "", signal.SIGKILL
    outputs_left = 0  # of the transaction, up to the point; 0: not in that transaction

    def begin_transaction(self) -> None:
        self._at(BEFORE)
        super().begin_transaction()
        self._at(BEGUN)

    def produce(self, topic: str, *args: Any, **options: Any) -> None:
        super().produce(topic, *args, **options)
        if topic.endswith(".out") and WatchedProducer.outputs_left:
            WatchedProducer.outputs_left -= 1
            if WatchedProducer.outputs_left == 1:
                self._at(HALF)

    def commit_transaction(self, *args: Any) -> None:
        self._at(SENT)
        super().commit_transaction(*args)
        self._at(COMMITTED)

    def _at(self, point: str) -> None:
        if WatchedProducer.outputs_left and point == WatchedProducer.point:
            WatchedProducer.point = ""
            if point in (HALF, SENT):
                self.flush(FLUSH_S_MAX)
            os.kill(os.getpid(), WatchedProducer.number)


class WatchedTransactions(transactions.Transactions):
    """Tells the producer when a transaction has outputs."""

    def _commit(self, transaction: Any) -> None:
        WatchedProducer.outputs_left = len(transaction.outputs) // 2 + 1 if transaction.outputs else 0
        super()._commit(transaction)


def main() -> int:
    """Run the worker."""
    job, partition, directory, bootstrap, config, WatchedProducer.point, number = sys.argv[1:]
    WatchedProducer.number = signal.Signals(int(number))
    transactions.Producer = WatchedProducer  # type: ignore[misc]
    transactions.Transactions._commit = WatchedTransactions._commit  # type: ignore[method-assign]
    return work(
        job,
        int(partition),
        directory=Path(directory),
        state=None,
        stage=None,
        address=LogAddress(f"kafka://{bootstrap}", Path(config)),
        sets=[],
        status_fd=-1,
    )


if __name__ == "__main__":
    sys.exit(main())
