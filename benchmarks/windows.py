"""Windows on Kafka, each kind beside the peers: ``python -m benchmarks.windows [--messages N] [--rounds N]``.

Each program counts the records of each key and window, and tells a count once, when its window is over. What it tells
must be as many counts as a plain computation gives, and add up to the same, or the run does not count. WRITE=1 puts
the table into docs/BENCHMARKS.md.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.table import Table

from benchmarks import results as kept
from benchmarks.counting import PARTITIONS
from benchmarks.on_kafka import PEER_THREADS, Result, Watcher, make_topic, spec
from benchmarks.peers.tools import PEERS
from benchmarks.running import Results, console, keep, median, run_all, say_where, show, taken
from benchmarks.windowing import ADVANCE_MS, DIFFERENCE_MS, GAP_MS, SIZE_MS, WINDOWS, events_topic
from framework.testing.broker import find_broker
from framework.worker.process_pool import ProcessPool
from protocol.partitioner import partition_of

MODULE = "benchmarks.windows"
GRETE = "Grete"
KEYS = 1_000
STEP_MS = 10  # between two records: a key has one in ten seconds
AFTER_MS = 3_600_000  # all windows of the records are over an hour later
VALUE = b"x" * 80
INTERVAL_MS = 1_000
WAIT_S = 120.0
BESIDE = [name for name in PEERS if name in ("Kafka Streams, exactly-once", "quixstreams, exactly-once")]
Times = dict[str, list[int]]  # of each key, the times of its records


def times_of(messages: int, base_ms: int) -> Times:
    """Return the records of all runs."""
    rng, times = random.Random(7), defaultdict[str, list[int]](list)
    for number in range(messages):
        times[f"k{rng.randrange(KEYS):04d}"].append(base_ms + number * STEP_MS)
    return times


def make_events(bootstrap: str, messages: int, base_ms: int) -> None:
    """Fill the input in the order of time."""
    topic, config = events_topic(messages), {"message.timestamp.type": "CreateTime"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)
    times = times_of(messages, base_ms)
    producer = _producer(bootstrap)
    for at, key in sorted((at, key) for key, each in times.items() for at in each):
        while True:
            try:
                producer.produce(topic, VALUE, key, timestamp=at)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise SystemExit("the broker does not take the input")


def _producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "partitioner": "murmur2_random"})


class Closing:
    """Sends, in each partition, a record that is an hour behind all others: it closes their windows.

    Kafka Streams looks for closed windows once a second at most, and when a record comes: so there is one each second.
    """

    def __init__(self, bootstrap: str, messages: int, base_ms: int) -> None:
        self._producer, self._topic = _producer(bootstrap), events_topic(messages)
        self._at = base_ms + messages * STEP_MS + AFTER_MS
        keys = {partition_of(key.encode(), PARTITIONS): key for key in (f"end{number}" for number in range(64))}
        self._keys = list(keys.values())
        self._next = 0.0

    def send(self) -> None:
        """Send them if a second has passed."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1
            for key in self._keys:
                self._producer.produce(self._topic, VALUE, key, timestamp=self._at)
            self._producer.flush(10)


def expected(kind: str, times: Times, *, of_quixstreams: bool) -> tuple[int, int]:
    """Return how many counts there are, and their sum."""
    found = 0, 0
    for each in times.values():
        found = found[0] + len(counts := _counts(kind, each, of_quixstreams)), found[1] + sum(counts)
    return found


def _counts(kind: str, times: list[int], of_quixstreams: bool) -> list[int]:
    if kind == "session":
        breaks = [n for n in range(1, len(times)) if times[n] > times[n - 1] + GAP_MS]
        return [end - start for start, end in zip([0, *breaks], [*breaks, len(times)], strict=True)]
    counts = defaultdict[int, int](int)
    if kind != "sliding":
        advance = SIZE_MS if kind == "tumbling" else ADVANCE_MS
        for at in times:
            for start in range(at // advance * advance, at - SIZE_MS, -advance):
                counts[start] += 1
        return list(counts.values())
    starts = {at - DIFFERENCE_MS for at in times}
    if of_quixstreams:  # only windows that end with a record, and those that a later record of the key closes
        starts = {start for start in starts if start + DIFFERENCE_MS < times[-1]}
    else:
        starts |= {at + 1 for at in times}
    inside = (bisect_right(times, s + DIFFERENCE_MS) - bisect_right(times, s - 1) for s in starts)
    return [count for count in inside if count]


def count(bootstrap: str, messages: int, base_ms: int, kind: str, form: str) -> Result:
    """Return records/s of one program over one kind of window, as a reader of its results sees it."""
    run = os.urandom(4).hex()
    topic = f"bench-windows-{run}"
    make_topic(bootstrap, topic, PARTITIONS)
    os.environ |= {"BENCH_RUN": run, "BENCH_WINDOW": kind, "BENCH_MESSAGES": str(messages)}
    wanted = expected(kind, times_of(messages, base_ms), of_quixstreams="quix" in form)
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as name:
        directory = Path(name)
        (directory / "job").mkdir()
        watcher, pool = Watcher(bootstrap, topic, PARTITIONS), ProcessPool()
        if form == GRETE:
            common: dict[str, int | str] = {
                "checkpoint_interval_ms": INTERVAL_MS,
                "processing_guarantee": "exactly-once",
            }
            specs = [spec(bootstrap, directory, p, "benchmarks.windowing", **common) for p in range(PARTITIONS)]
            processes = [pool.start(each).process for each in specs]
        else:
            processes = [_peer(form, bootstrap, (events_topic(messages), topic), directory, kind)]
        try:
            closing = Closing(bootstrap, messages, base_ms)
            first, last = _watch(watcher, closing, wanted, processes, directory)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)
            watcher.close()
            pool.close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "messages_per_s": messages / (last - first),
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_mib": used.ru_maxrss / 1024,
    }


def _peer(form: str, bootstrap: str, topics: tuple[str, str], directory: Path, kind: str) -> "subprocess.Popen[bytes]":
    peer = PEERS[form]
    (directory / "peer").mkdir()
    more = [topics[1], str(directory / "peer"), peer.guarantee, str(INTERVAL_MS), str(PEER_THREADS), kind]
    with (directory / "worker-0.log").open("wb") as log:
        command = [*peer.tool.command("Windows"), bootstrap, *topics, *more]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)


def _watch(
    watcher: Watcher,
    closing: Closing,
    wanted: tuple[int, int],
    processes: "list[subprocess.Popen[bytes]]",
    directory: Path,
) -> tuple[float, float]:
    """Return when the first result was appended and when the last one was seen; check how many there are."""
    first, found, total = float("inf"), 0, 0
    deadline = time.monotonic() + WAIT_S
    while found < wanted[0]:
        closing.send()
        for message in watcher.take():
            value = message.value()
            if value is not None and message.error() is None:
                first = min(first, message.timestamp()[1] / 1000)
                found, total = found + 1, total + int(value)
        if time.monotonic() > deadline or any(process.poll() for process in processes):
            logs = "".join(path.read_text()[-2_000:] for path in directory.glob("worker-*.log"))
            raise SystemExit(f"{found} of {wanted[0]} counts, then no more: the measurement does not count\n{logs}")
    if (found, total) != wanted:
        raise SystemExit(f"{found} counts, in sum {total}, where {wanted} were due: the measurement does not count")
    return first, time.time()


def show_windows(results: Results, messages: int) -> kept.Table:
    """Print each kind of window beside the peers'."""
    title = f"Records/s: {messages:,} records of {KEYS:,} keys counted by window, final results, a commit a second"
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


def main() -> None:
    """Run all rounds on a broker of their own, print the table; or one measurement, as a process of its own."""
    if sys.argv[1:2] == ["count"]:
        bootstrap, messages, base, kind, form = sys.argv[2:7]
        print(json.dumps(count(bootstrap, int(messages), int(base), kind, form)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    base_ms = (time.time_ns() // 1_000_000 - 2 * AFTER_MS) // SIZE_MS * SIZE_MS
    for form in BESIDE:
        PEERS[form].tool.command("Windows")  # fetched and built, once
    with find_broker(loaded=True) as broker:
        console.print(f"Kafka: {broker.bootstrap} ({broker.how})")
        make_events(broker.bootstrap, options.messages, base_ms)
        plan = {
            f"{kind}: {form}": ("count", broker.bootstrap, str(options.messages), str(base_ms), kind, form)
            for kind in WINDOWS
            for form in (GRETE, *BESIDE)
            if not (kind == "session" and form.startswith("quixstreams"))  # it has none
        }
        results = run_all(MODULE, plan, options.rounds)
    say_where("confluent-kafka", "rocksdict", "msgspec")
    run, table = taken("confluent-kafka", "rocksdict", "msgspec"), show_windows(results, options.messages)
    run.notes = [f"{PEERS[form].tool.name} {PEERS[form].tool.version}: {PEERS[form].tool.counting}." for form in BESIDE]
    keep("windows", run, [table])


if __name__ == "__main__":
    main()
