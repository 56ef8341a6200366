"""New epochs of many sinks at once: `python -m tests.logs.renewals_prove --partitions 64`. Long: not for pytest.

A process commits a transaction for each partition of a changelog, again and again, over TLS and SASL. Then it takes the
end of each for one that may come again, so that all take a new epoch at once, before the next. It prints how long the
ends and the new epochs took, and of how many ends a shorter `retry.backoff.ms` would have asked for a new epoch.
"""

import argparse
import logging
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from confluent_kafka.admin import AclOperation, ResourceType

from grete.logs.kafka import KafkaLog
from grete.logs.kafka.client.endings import JITTER, RETRY_MS
from grete.logs.kafka.write import transactions
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from tests.logs.secure_broker import secure_broker

RENEWAL = re.compile(r"has a new epoch, after (\d+) ms")
OUTPUTS = 20  # of each transaction
LIMIT_S = 120.0
KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


class Renewals(logging.Handler):
    """Keeps how many ms each new epoch took."""

    def __init__(self) -> None:
        super().__init__()
        self.took = list[float]()

    def emit(self, record: logging.LogRecord) -> None:
        """Look whether a line tells of one."""
        self.took += map(float, RENEWAL.findall(record.getMessage()))


def main(arguments: list[str]) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.logs.renewals_prove", description=__doc__)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10, help="of transactions, one for each partition")
    given = parser.parse_args(arguments)
    ends, renewals = list[float](), Renewals()
    logging.getLogger("grete.kafka").addHandler(renewals)
    logging.getLogger("grete.kafka").setLevel(logging.INFO)
    with tempfile.TemporaryDirectory() as name, secure_broker(Path(name)) as broker:
        broker.allow(*((kind, "*", AclOperation.ALL) for kind in KINDS))
        broker.allow((ResourceType.BROKER, "kafka-cluster", AclOperation.ALL))
        with closing(KafkaLog(broker.bootstrap, broker.options())) as log:
            log.create_topic("changelog", given.partitions)
            log.create_topic("out", given.partitions, plain=True)
            for number in range(given.partitions):
                log.transactional(TopicPartition("changelog", number))
            _commit(log, given.partitions)  # the claims

            def asked(seconds: float) -> bool:
                ends.append(1000 * seconds)
                return doubted

            doubted = False
            vars(transactions)["may_come_again"] = asked
            for _ in range(given.rounds):
                _commit(log, given.partitions)
            quiet, doubted = ends[:], True
            _commit(log, given.partitions)
            began = time.monotonic()
            _commit(log, given.partitions)
            all_s = time.monotonic() - began
    _tell(f"{len(quiet)} ends, {given.partitions} at a time: {_spread(quiet)}")
    for backoff in (10, 50, 100, RETRY_MS, 2 * RETRY_MS):
        share = 100 * sum(each >= backoff * (1 - JITTER) for each in quiet) / len(quiet)
        _tell(f"retry.backoff.ms = {backoff}: {share:.1f} % of them would be followed by a new epoch")
    _tell(f"{len(renewals.took)} new epochs at once: {_spread(renewals.took)}; all committed after {all_s:.1f} s")
    return 0


def _commit(log: KafkaLog, partitions: int) -> None:
    """Commit a transaction for each partition; return when all are there."""
    for number in range(partitions):
        outputs = [ExternalRecord(TopicPartition("out", number), b"k", b"v" * 100, 1)] * OUTPUTS
        log.send(0, number + 1, TopicPartition("changelog", number), b"commit", sync=True, outputs=outputs)
    left, deadline = set(range(1, partitions + 1)), time.monotonic() + LIMIT_S
    while left:
        assert time.monotonic() < deadline, left
        left -= {delivery.token for delivery in log.poll()}
        log.wait(10)


def _spread(took: Sequence[float]) -> str:
    p99 = statistics.quantiles(took, n=100, method="inclusive")[-1]
    return f"p50 {statistics.median(took):.0f} ms, p99 {p99:.0f} ms, most {max(took):.0f} ms"


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
