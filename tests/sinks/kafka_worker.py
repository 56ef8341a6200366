"""A worker on Kafka that ends or stops itself at a named point of its first transaction with outputs.

Run as a script: job file, partition, directory, broker, file of Kafka options, point, signal. No hook in the framework
serves this: the producer is wrapped here, in the worker's own process.
"""

import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from grete.cli.commands.worker import worker
from grete.cli.job_target import NamedJob
from grete.cli.settings_file import settings_of
from grete.logs.address import LogAddress
from grete.logs.kafka.write import transactional_writer, transactions
from grete.logs.kafka.write.transactional_writer import TransactionalWriter

BEFORE, BEGUN, HALF, SENT, COMMITTED = "before begin", "begun", "half of it sent", "all sent", "committed"
POINTS = (BEFORE, BEGUN, HALF, SENT, COMMITTED)
OUT = ".out"  # end of an output topic's name
FLUSH_S_MAX = 60.0


class WatchedProducer(Producer):
    """Sends its process the signal where it is told to."""

    point, number = "", signal.SIGKILL
    outputs, handed_over = 0, 0  # of the transaction

    def begin_transaction(self) -> None:
        self._at(BEFORE)
        super().begin_transaction()
        self._at(BEGUN)

    def produce(self, topic: str, *args: Any, **options: Any) -> None:
        super().produce(topic, *args, **options)
        if topic.endswith(OUT):
            WatchedProducer.handed_over += 1
            if 2 * self.handed_over >= self.outputs:
                self._at(HALF)

    def commit_transaction(self, *args: Any) -> None:
        self._at(SENT)
        super().commit_transaction(*args)
        self._at(COMMITTED)

    def _at(self, point: str) -> None:
        if self.outputs and point == self.point:
            WatchedProducer.point = ""
            if point in (HALF, SENT):
                self.flush(FLUSH_S_MAX)
            signal.pthread_kill(threading.get_ident(), self.number)  # this thread first: it must not go on


class WatchedWriter(TransactionalWriter):
    """Tells the producer how many outputs a transaction has."""

    def _commit(self, transaction: Any, placed: Any) -> None:
        WatchedProducer.outputs, WatchedProducer.handed_over = len(transaction.outputs), 0
        super()._commit(transaction, placed)


def main() -> int:
    """Run the worker."""
    job, partition, directory, bootstrap, config, WatchedProducer.point, number = sys.argv[1:]
    WatchedProducer.number = signal.Signals(int(number))
    setattr(transactional_writer, "Producer", WatchedProducer)  # noqa: B010  # mypy does not let a module be changed openly
    setattr(transactions, "TransactionalWriter", WatchedWriter)  # noqa: B010  # as above
    address = LogAddress(f"kafka://{bootstrap}", Path(config))
    return worker(NamedJob(job, Path(directory), address, partial(settings_of, [], None)), partition=int(partition))


if __name__ == "__main__":
    sys.exit(main())
