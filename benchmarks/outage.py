"""A program writes on while its only broker is dead: ``python -m benchmarks.outage [seconds=180] [rate=2000]``.

``rate`` records of 100 bytes a second, for 15 s with the broker, then for ``seconds`` without it (SIGKILL), then for
15 s with it. Prints a line of JSON: how long ``send`` took in each part (µs), how large the spool became, and how long
it took until the log had everything; and reads all back: none may be missing, and a reader may take none for new twice.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from grete import Input, Job, Once, Record, Task, Topic, int64, utf8
from grete.clients import Writer
from grete.logs.kafka import KafkaLog
from grete.logs.partition_reader import rows
from grete.protocol.frames import decode_headers
from grete.protocol.ids import TopicPartition
from tests.verification.chaos.cluster import Cluster

NUMBERS = Topic("numbers", key=int64, value=utf8)
BESIDE_S = 15.0  # with the broker, before and behind the outage
PARTITIONS = 2


class Take(Task):
    """Declares the topic as an input of a job; the benchmark starts no worker."""

    numbers = Input(NUMBERS)

    def process(self, record: Record[int, str]) -> None:
        """Do nothing."""


job = Job("outage", [Take], partitions=PARTITIONS)


def write(writer: Writer[int, str], first: int, seconds: float, rate: int) -> list[float]:
    """Write at this rate; return how long each ``send`` took, in s."""
    took, began_s = list[float](), time.perf_counter()
    while (now_s := time.perf_counter()) - began_s < seconds:
        if len(took) >= (now_s - began_s) * rate:
            time.sleep(0.001)
            continue
        writer.send(first + len(took), f"{first + len(took):0100}")
        took.append(time.perf_counter() - now_s)
    return took


def described(took: Sequence[float]) -> dict[str, float]:
    """Return count and percentiles, in µs."""
    ordered = sorted(took)
    at = {"p50_us": 0.5, "p99_us": 0.99, "p99.9_us": 0.999}
    found = {name: round(ordered[int(len(ordered) * share)] * 1e6) for name, share in at.items()}
    return {"records": len(took), **found, "max_us": round(ordered[-1] * 1e6)}


def recount(bootstrap: str) -> tuple[int, int, int]:
    """Return (records in the topic, of them new to a reader, different keys)."""
    once, new, found, keys = Once(), 0, 0, set[bytes | None]()
    log = KafkaLog(bootstrap)
    for number in range(PARTITIONS):
        partition = TopicPartition(NUMBERS.name, number)
        for row in rows(log, partition, *log.bounds(partition)):
            found += 1
            keys.add(row.key)
            new += once.is_new(NUMBERS.name, number, decode_headers(row.headers or b""))
    log.close()
    return found, new, len(keys)


def main(seconds: float, rate: int) -> dict[str, object]:
    """Return the figures that were measured."""
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder) / "kafka") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(NUMBERS.name, PARTITIONS)])[NUMBERS.name].result(60)
        directory = Path(folder) / "job"
        with Writer(job, NUMBERS, log=f"kafka://{cluster.bootstrap}", directory=directory) as writer:
            before = write(writer, 0, BESIDE_S, rate)
            cluster.kill(0)
            away = write(writer, len(before), seconds, rate)
            waiting = writer.waiting
            size = sum(path.stat().st_size for path in (directory / "spool").iterdir())
            cluster.start(0)
            back_s = time.perf_counter()
            after = write(writer, len(before) + len(away), BESIDE_S, rate)
            writer.flush()
            drained_s = time.perf_counter() - back_s
        found, new, keys = recount(cluster.bootstrap)
    return {
        "seconds": seconds, "rate": rate, "before": described(before), "away": described(away),
        "after": described(after), "waiting": waiting, "spool_bytes": size, "drained_s": round(drained_s, 1),
        "written": len(before) + len(away) + len(after), "in_topic": found, "new": new, "keys": keys,
    }  # fmt: skip


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    print(json.dumps(main(float(given.get("seconds", 180)), int(given.get("rate", 2_000)))))
