"""Tells how long clients wait that ask for the end of a partition while its leader dies, with three brokers.

python -m tests.verification.chaos.dead_leaders [--kills 12] [--seed N]

Twelve writers take a new epoch, commit, and read the tail of their partition, again and again, each with new clients;
four more ask for bounds. A broker after another is killed in the middle. All must come past that within 20 s: the
cluster has new leaders after some 3 s. Exit code 1 if one does not.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from grete.errors import FrameworkError
from grete.logs.kafka.client.config import split_options, transactional
from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.client.metadata_client import MetadataClient
from grete.logs.kafka.write.tail import read_tail
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition
from tests.verification.chaos.cluster import NOTICED_SOON, Cluster

WRITERS, READERS = 12, 4
PAST_S_MAX = 20.0
QUIET_S = 3.0, 6.0  # between a broker that is back and the next kill
SLICE_S, COMMIT_S_MAX = 0.5, 30.0


class Stopped(Exception):
    """The experiment is over."""


class Client:
    """One that goes round and round; ``round_s``: when its present round began."""

    def __init__(self, name: str, rounds: Callable[[], None], stop: threading.Event) -> None:
        self.name, self.round_s = name, time.monotonic()
        self._rounds, self._stop = rounds, stop
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(Stopped):
            while not self._stop.is_set():
                self.round_s = time.monotonic()
                with suppress(KafkaException, FrameworkError):  # a commit that failed: the next round is another one
                    self._rounds()


class Rounds:
    """The rounds of the clients."""

    def __init__(self, bootstrap: str, stop: threading.Event) -> None:
        self._bootstrap, self._stop = bootstrap, stop
        self._producer, self._consumer, _ = split_options(bootstrap, "dead-leaders", {})
        self._troubles = Troubles(str)
        self._ends = [0] * WRITERS

    def write(self, number: int) -> None:
        """Take a new epoch, commit a record, find it."""
        producer: Producer = self._troubles.made(Producer, transactional(self._producer, f"writer-{number}"))
        while True:
            try:
                producer.init_transactions(SLICE_S)
                break
            except KafkaException as error:
                self._go_on()
                if not error.args[0].retriable():
                    raise
        producer.begin_transaction()
        producer.produce("t", b"v", partition=number)
        producer.commit_transaction(COMMIT_S_MAX)
        at = TopicPartition("t", number)
        for row in read_tail(self._consumer, self._troubles, at, self._ends[number], 0.0, self._go_on):
            self._ends[number] = row.offset + 1

    def ask(self, number: int) -> None:
        """Ask for the bounds of a partition, twice: a leader that is known may die in between."""
        client = MetadataClient(self._consumer, self._troubles, self._bootstrap, Patience())
        with closing(client):
            for _ in range(2):
                client.bounds(TopicPartition("t", number))
                self._go_on()

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise Stopped


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill one broker after another, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    rng, stop, stuck = random.Random(asked.seed), threading.Event(), 0
    with tempfile.TemporaryDirectory(prefix="grete-leaders-") as name, Cluster(Path(name), 3, NOTICED_SOON) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", WRITERS, replication_factor=3)])["t"].result()
        rounds = Rounds(cluster.bootstrap, stop)
        clients = [Client(f"writer {n}", partial(rounds.write, n), stop) for n in range(WRITERS)]
        clients += [Client(f"reader {n}", partial(rounds.ask, n), stop) for n in range(READERS)]
        for kill in range(asked.kills):
            time.sleep(rng.uniform(*QUIET_S))
            cluster.kill(kill % 3)
            killed_s = time.monotonic()
            left = _left(clients, killed_s)
            stuck += bool(left)
            said = f"stuck: {', '.join(left)}" if left else f"all past it after {time.monotonic() - killed_s:.1f} s"
            print(f"broker {kill % 3 + 1} killed: {said}", flush=True)
            cluster.start(kill % 3)
        stop.set()
    print(f"{asked.kills} kills, {stuck} with clients that were stuck")
    return 1 if stuck else 0


def _left(clients: Sequence[Client], killed_s: float) -> list[str]:
    """Wait until all have begun a round after the kill; return those that have not within the bound."""
    while True:
        left = [each.name for each in clients if each.round_s < killed_s + 1]
        if not left or time.monotonic() > killed_s + PAST_S_MAX:
            return left
        time.sleep(SLICE_S)


if __name__ == "__main__":
    sys.exit(main())
