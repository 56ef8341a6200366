"""The common part of the measurements of windows and of joins: input by time, Grete beside peers, one table.

Each program has a commit a second, exactly once, and as many partitions as the others.
"""

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.table import Table

from benchmarks import results as kept
from benchmarks.counting import PARTITIONS
from benchmarks.on_kafka import PEER_THREADS, Result, Watcher, make_topic, spec
from benchmarks.peers.tools import PEERS, Program
from benchmarks.running import Results, keep, median, say_where, show, taken
from grete.protocol.partitioner import partition_of
from grete.worker.supervisor.process_pool import ProcessPool

GRETE = "Grete"
BESIDE = [name for name in PEERS if name in ("Kafka Streams, exactly-once", "quixstreams, exactly-once")]
KEYS = 1_000
STEP_MS = 10  # between two records: a key has one in ten seconds
AFTER_MS = 3_600_000  # all that the records wait for is over an hour later
INTERVAL_MS = 1_000
WAIT_S = 120.0
PACKAGES = ("confluent-kafka", "rocksdict", "msgspec")
Processes = Sequence["subprocess.Popen[bytes]"]
Running = Callable[[], None]  # raises SystemExit if a process has ended, or it takes too long


def producer(bootstrap: str) -> Producer:
    """Return a producer that places keys as Java does."""
    order = {"partitioner": "murmur2_random", "enable.idempotence": True}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **order})


def fill(bootstrap: str, topics: Sequence[str], records: Iterable[tuple[str, int, str, bytes]]) -> None:
    """Make topics and fill them with (topic, time, key, value), in this order.

    librdkafka would not keep it for what it is given before it knows the partitions of a topic.
    """
    config = {"message.timestamp.type": "CreateTime"}
    admin, sending = AdminClient({"bootstrap.servers": bootstrap}), producer(bootstrap)
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config) for topic in topics]).values():
        made.result(30)
    for topic in topics:
        sending.list_topics(topic, 30)
    for topic, at, key, value in records:
        while True:
            try:
                sending.produce(topic, value, key, timestamp=at)
                break
            except BufferError:
                sending.poll(0.1)
    if sending.flush(60):
        raise SystemExit("the broker does not take the input")


class Closing:
    """Sends, in each partition, a record that is an hour behind all others: no record before it waits any longer.

    Kafka Streams looks for what is closed once a second at most, and when a record comes: so there is one each second.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], after_ms: int, value: bytes) -> None:
        """``after_ms``: the time of the last record. A key is in one topic only: they are no pair."""
        self._producer, self._value = producer(bootstrap), value
        self._at = after_ms + AFTER_MS
        self._keys = []
        for topic in topics:
            keys = {partition_of(key.encode(), PARTITIONS): key for key in (f"{topic}-{n}" for n in range(64))}
            self._keys += [(topic, key) for key in keys.values()]
        self._next = 0.0

    def send(self) -> None:
        """Send them if a second has passed."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1
            for topic, key in self._keys:
                self._producer.produce(topic, self._value, key, timestamp=self._at)
            self._producer.flush(10)


def run(
    bootstrap: str,
    form: str,
    job: str,
    program: tuple[Program, str],
    topics: tuple[str, str],
    watch: Callable[[Watcher, Path, Running], float],
) -> Result:
    """Run Grete's ``job`` or a peer's program of a kind, from input to output topic, until ``watch`` returns its rate.

    ``watch`` gets the output, a directory of this run, and what tells whether it still runs.
    """
    make_topic(bootstrap, topics[1], PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as name:
        directory = Path(name)
        (directory / "job").mkdir()
        os.environ["BENCH_STARTED"] = str(directory / "started")  # for a program that notes when it has begun
        watcher, pool = Watcher(bootstrap, topics[1], PARTITIONS), ProcessPool()
        if form == GRETE:
            common: dict[str, int | str] = {
                "checkpoint_interval_ms": INTERVAL_MS,
                "processing_guarantee": "exactly-once",
            }
            specs = [spec(bootstrap, directory, p, job, **common) for p in range(PARTITIONS)]
            processes = [pool.start(each).process for each in specs]
        else:
            processes = [_peer(form, bootstrap, program, topics, directory)]
        try:
            rate = watch(watcher, directory, _running(processes, directory))
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)
            watcher.close()
            pool.close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"messages_per_s": rate, "cpu_s": used.ru_utime + used.ru_stime, "rss_mib": used.ru_maxrss / 1024}


def _running(processes: Processes, directory: Path) -> Running:
    deadline = time.monotonic() + WAIT_S

    def check() -> None:
        if time.monotonic() > deadline or any(process.poll() for process in processes):
            logs = "".join(path.read_text()[-2_000:] for path in directory.glob("worker-*.log"))
            raise SystemExit(f"not all results came, then no more: the measurement does not count\n{logs}")

    return check


def _peer(
    form: str, bootstrap: str, program: tuple[Program, str], topics: tuple[str, str], directory: Path
) -> "subprocess.Popen[bytes]":
    peer = PEERS[form]
    (directory / "peer").mkdir()
    more = [topics[1], str(directory / "peer"), peer.guarantee, str(INTERVAL_MS), str(PEER_THREADS), program[1]]
    with (directory / "worker-0.log").open("wb") as log:
        command = [*peer.tool.command(program[0]), bootstrap, *topics, *more]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)


def report(name: str, results: Results, title: str) -> None:
    """Print each kind beside the peers', and keep it if that was asked for: WRITE=1. Rows are "KIND: FORM"."""
    say_where(*PACKAGES)
    table = _table(results, title)
    run = taken(*PACKAGES)
    run.notes = [f"{PEERS[form].tool.name} {PEERS[form].tool.version}: {PEERS[form].tool.counting}." for form in BESIDE]
    keep(name, run, [table])


def _table(results: Results, title: str) -> kept.Table:
    table = Table(title=title)
    for column in ("", "median", "runs", "of Kafka Streams", "CPU s", "RSS MiB of the largest process"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=not column)
    for label, runs in results.items():
        beside = median(results, f"{label.split(':')[0]}: {BESIDE[-1]}", "messages_per_s")
        rate = median(results, label, "messages_per_s")
        each = " ".join(f"{run['messages_per_s'] / 1000:.0f}k" for run in runs)
        row = [f"{rate:,.0f}", each, f"{rate / beside:.2f}"]
        table.add_row(label, *row, *(f"{median(results, label, name):.0f}" for name in ("cpu_s", "rss_mib")))
    return show(table)
