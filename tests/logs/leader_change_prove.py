"""Produces around a change of a leader, by `retry.backoff.ms`: `python -m tests.logs.leader_change_prove`. No test.

Of three brokers one is killed and comes back, and then becomes the leader again, as asked for. Meanwhile a producer for
each value of the option sends a record every 20 ms. It prints for each value how long the slowest record took around
the change, at the median of all rounds and at most.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import ElectionType, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka_topics import create
from tests.verification.chaos.cluster import Cluster

BACKOFFS_MS = 50, 100, 200, 400, 1_000
SEND_S, BEFORE_S, AFTER_S = 0.02, 2.0, 4.0
LIMIT_S = 60.0


def main(arguments: list[str]) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.logs.leader_change_prove", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args(arguments)
    slowest: dict[int, list[float]] = {backoff: [] for backoff in BACKOFFS_MS}
    with tempfile.TemporaryDirectory() as name, Cluster(Path(name) / "kafka", 3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        create(admin, NewTopic("t", 1, 3))
        preferred = _leader(admin)
        for _ in range(given.rounds):
            cluster.kill(preferred - 1)
            _until(lambda: _leader(admin) not in (preferred, -1))
            cluster.start(preferred - 1)
            _until(lambda: len(admin.list_topics("t", timeout=LIMIT_S).topics["t"].partitions[0].isrs) == 3)
            for backoff, took in _change(admin, cluster.bootstrap).items():
                slowest[backoff].append(took)
    for backoff, each in slowest.items():
        median, most = statistics.median(each), max(each)
        sys.stdout.write(f"retry.backoff.ms = {backoff}: p50 {median:.0f} ms, most {most:.0f} ms of {len(each)}\n")
    return 0


def _change(admin: AdminClient, bootstrap: str) -> dict[int, float]:
    """Let the preferred leader lead while records come; return for each value how many ms the slowest one took."""
    took = dict.fromkeys(BACKOFFS_MS, 0.0)

    def delivered(backoff: int, sent: float, error: KafkaError | None, message: Message) -> None:
        assert error is None, (error, message)
        took[backoff] = max(took[backoff], 1000 * (time.monotonic() - sent))

    common = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
    producers = {
        backoff: Producer(common | {"retry.backoff.ms": backoff, "retry.backoff.max.ms": max(1_000, backoff)})
        for backoff in BACKOFFS_MS
    }
    for producer in producers.values():  # connected, and the topic is known
        producer.produce("t", b"first", partition=0)
        producer.flush(LIMIT_S)
    change, asked = time.monotonic() + BEFORE_S, False
    while time.monotonic() < change + AFTER_S:
        for backoff, producer in producers.items():
            producer.produce("t", b"x", partition=0, on_delivery=partial(delivered, backoff, time.monotonic()))
            producer.poll(0)
        if not asked and time.monotonic() > change:
            asked = True
            admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)])
        time.sleep(SEND_S)
    for producer in producers.values():
        producer.flush(LIMIT_S)
    return took


def _leader(admin: AdminClient) -> int:
    return admin.list_topics("t", timeout=LIMIT_S).topics["t"].partitions[0].leader


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
