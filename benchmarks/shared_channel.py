"""Four solutions for the shared channel: ``make bench EXPERIMENT=shared_channel [LOG=…] [SECONDS_EACH=8] [WRITE=1]``.

ONLY="very late" measures one of the two late sources; its tables take the place of those of the page.

Two sources write into the same two partitions, and one of them is late, a little or very: each 5th or 100th of its
lines takes a while. So its markers come late, and the records of the other one early. Solution 3 (keep them, in memory
or on disk) and solution 2 (skip them, seek back) are settings of the engine and are measured. Solutions 1 (wait for
each other's markers) and 4 (process on sight, process late records twice) are computed from what was measured in the
same run.
"""

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import track

from benchmarks.latency.ends import Receiver, Sender, receiver, sender
from benchmarks.on_kafka import make_topic
from benchmarks.results import Kept, Run, Table, read, write
from benchmarks.running import console, taken
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.job.topics import create_topics
from grete.logs.address import EMBEDDED, IN_DIRECTORY, KAFKA, LogAddress
from grete.testing.broker import find_broker

PARTITIONS, WORDS, RATE = 2, 20, 50.0
WARM_S, LIMIT_S = 2.0, 120.0


class Lateness(NamedTuple):
    """One in ``each`` lines of source 1, which has 25 a second, takes ``late_ms``. ``seconds``: of a run, at least."""

    name: str
    late_ms: int
    each: int
    interval_ms: int
    seconds: float


LATENESSES = (
    Lateness("a little late", 60, 5, 200, 0.0),  # 0.3 of its time
    Lateness("very late", 3_000, 100, 200, 24.0),  # 0.75 of its time, in pieces of 15 checkpoints
)
RUN = os.environ.get("BENCH_RUN", "")
LATE_MS, SLOW_EACH = int(os.environ.get("BENCH_LATE_MS", "0")), int(os.environ.get("BENCH_SLOW_EACH", "1"))
AT_LEAST_ONCE = "at least once, no source late"
VARIANTS = {  # label → (whether source 1 is late, settings)
    AT_LEAST_ONCE: (False, {"processing_guarantee": "at-least-once"}),
    "no source late": (False, {}),
    "3: keep early records in memory": (True, {}),
    "3: keep early records on disk": (True, {"early_memory_bytes_max": "0"}),
    "2: skip early records, seek back": (True, {"early_bytes_max": "0"}),
}
SEED = {"1": "tens of ms", "2": "hundreds of ms", "3": "a few ms to tens of ms", "4": "linear in processing time"}

lines = Topic(f"bench-lines-{RUN}", key=utf8, value=int64)
words = Topic("words", key=utf8, value=int64)
totals = Topic(f"bench-totals-{RUN}", key=utf8, value=int64)


class Split(Task):
    """A line, its number, to words; late in partition 1."""

    lines = Input(lines)
    words = Output(words)

    def process(self, record: Record[str, int]) -> None:
        """Send the words; wait first where this is the late source."""
        if record.partition == 1 and record.value // PARTITIONS % SLOW_EACH == 0:
            time.sleep(LATE_MS / 1000)
        for number in range(WORDS):
            self.words.send(f"word-{number}", record.value)


class Count(Task):
    """Counts words; each count goes out, with the number of its line."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    totals = Output(totals)

    def process(self, record: Record[str, int]) -> None:
        """Count, and tell."""
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)
        self.totals.send(record.key, record.value)


job = Job(f"bench-shared-{RUN}", stages=[Split, Count], partitions=PARTITIONS)


class Found(NamedTuple):
    """A run: latency of each line in ms, and what both workers have counted."""

    latencies: list[float]
    workers: list[dict[str, Any]]

    def total(self, name: str) -> float:
        """Return a figure of both workers."""
        return float(sum(worker[name] for worker in self.workers))

    def seen(self, name: str) -> int:
        """Return a count of both cores."""
        return sum(worker["seen"].get(name, 0) for worker in self.workers)

    def quantile(self, percent: int) -> float:
        """Return a quantile of the latencies."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    @property
    def spread_ms(self) -> list[float]:
        """Return for each checkpoint at each task the time between its first and its last marker."""
        return [1000 * each for worker in self.workers for each in worker["spread_s"]]


def measure(address: str, lateness: Lateness, label: str, seconds: float) -> Found:
    """Run one variant. Raises SystemExit if an output is missing, or exactly once there twice."""
    late, settings = VARIANTS[label]
    run, seconds = os.urandom(4).hex(), max(seconds, lateness.seconds)
    late_ms, each = (lateness.late_ms, lateness.each) if late else (0, 1)
    os.environ |= {"BENCH_RUN": run, "BENCH_LATE_MS": str(late_ms), "BENCH_SLOW_EACH": str(each)}
    settings = {"checkpoint_interval_ms": str(lateness.interval_ms), **settings}
    pairs = [f"{name}={text}" for name, text in settings.items()]
    with tempfile.TemporaryDirectory(prefix="grete-shared-") as name, ExitStack() as stack:
        directory = Path(name) / "job"
        place = _topics(address, directory, run)
        workers = [_start(address, directory, partition, pairs) for partition in range(PARTITIONS)]
        for worker in workers:
            stack.callback(worker.wait)
            stack.callback(worker.kill)
        for worker in workers:
            if _said(worker) != "running":
                raise SystemExit(f"a worker did not start: {worker.args!r}")
        latencies = _feed(place, run, seconds, repeats=label == AT_LEAST_ONCE)
        ended = [json.loads(worker.communicate(timeout=LIMIT_S)[0]) for worker in workers]
        return Found(latencies[round(WARM_S * RATE) :], ended)


def _topics(address: str, directory: Path, run: str) -> str:
    """Make the topics; return where they are read and written from outside."""
    kafka = address.startswith(KAFKA)
    directory.mkdir()
    job_directory = JobDirectory(directory, address=LogAddress(address) if kafka else IN_DIRECTORY)
    for topic in (f"bench-lines-{run}", f"bench-totals-{run}") if kafka else ():
        make_topic(address.removeprefix(KAFKA), topic, PARTITIONS)
    log = job_directory.open_log()
    create_topics(load_job(__file__), log)
    log.close()
    return address if kafka else str(job_directory.directory / "log.db")


def _start(address: str, directory: Path, partition: int, pairs: list[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.shared_channel_worker", address, str(directory), str(partition)]
    return subprocess.Popen([*command, *pairs], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _said(worker: "subprocess.Popen[str]") -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def _feed(place: str, run: str, seconds: float, *, repeats: bool) -> list[float]:
    """Send lines at their rate, read what comes of them; return the latency of each line in ms."""
    with (
        closing(sender(place, f"bench-lines-{run}")) as writer,
        closing(receiver(place, f"bench-totals-{run}", PARTITIONS)) as reader,
    ):
        return _latencies(writer, reader, seconds, repeats=repeats)


def _latencies(writer: Sender, reader: Receiver, seconds: float, *, repeats: bool) -> list[float]:
    total = round((WARM_S + seconds) * RATE)
    jitter = random.Random(2).random  # else lines and checkpoints keep the same step
    sent, latest, outputs = [0.0] * total, [0.0] * total, Counter[int]()
    began, number = time.monotonic(), 0
    due = began
    while number < total or len(outputs) < total or min(outputs.values()) < WORDS:
        now = time.monotonic()
        if number < total and now >= due:
            sent[number] = now
            writer.send(number % PARTITIONS, b"%d" % number, int64.encode(number))
            number += 1
            due = began + (number + jitter()) / RATE
        for _, _, value in reader.take(0.002):
            line = int64.decode(value)
            outputs[line] += 1
            latest[line] = latest[line] if outputs[line] > WORDS else time.monotonic()
        if now > began + total / RATE + LIMIT_S:
            raise SystemExit(f"{total * WORDS - outputs.total()} outputs are missing: the run does not count")
    if not repeats and outputs.total() != total * WORDS:
        raise SystemExit(f"{outputs.total() - total * WORDS} outputs too many: the run does not count")
    return [1000 * (at - begun) for at, begun in zip(latest, sent, strict=True)]


COLUMNS = [
    "solution", "p50 / p99 ms", "early records", "seeks back", "read again", "on disk", "CPU ms a 1,000 records",
    "the design document expects",
]  # fmt: skip


def rows_of(found: dict[str, Found]) -> list[list[int | float | str | None]]:
    """Return a row for each variant, then those of the two solutions that are computed."""
    rows: list[list[int | float | str | None]] = []
    for label, each in found.items():
        records = each.total("records")
        rows.append([
            label, f"{each.quantile(50):.0f} / {each.quantile(99):.0f}",
            f"{each.seen('early records') / records:.0%}", each.seen("seeks back"),
            f"{each.total('bytes_again') / max(1, each.total('bytes') - each.total('bytes_again')):.0%}",
            f"{each.seen('early records on disk') / records:.0%}", round(1e6 * each.total("cpu_s") / records),
            SEED.get(label[0], "–"),
        ])  # fmt: skip
    return rows


def computed(found: dict[str, Found], interval_ms: int) -> list[list[int | float | str | None]]:
    """Return the cost that solutions 1 and 4 would have, from the runs with a late source."""
    kept = found["3: keep early records in memory"]
    hop_ms = found[AT_LEAST_ONCE].quantile(50) / 3  # input, stream, output: each appended and read
    stall_ms = statistics.mean(kept.spread_ms) + hop_ms
    longest_ms = sorted(kept.spread_ms)[len(kept.spread_ms) * 99 // 100] + hop_ms
    share = kept.total("late") / kept.total("records")
    cpu_ms = 1e6 * kept.total("cpu_s") / kept.total("records")
    idle = f"{stall_ms / interval_ms:.0%} of their time" if stall_ms < interval_ms else "longer than its interval"
    first = f"sources wait for {stall_ms:.0f} ms in a checkpoint (p99 {longest_ms:.0f}), {idle}"
    fourth = f"{share:.0%} of the records are processed twice: {share * cpu_ms:.0f} ms of CPU a 1,000 records more"
    return [
        ["1: no record before all markers", first, SEED["1"]],
        ["4: process on sight, fix later", fourth, SEED["4"]],
    ]


def _measure_all(run: Run, name: str, address: str, lateness: Lateness, seconds: float) -> None:
    where = f"{name}, one source {lateness.name}"
    found = {label: measure(address, lateness, label, seconds) for label in track(VARIANTS, where, console=console)}
    heads = ["solution", "computed from the same runs", "the design document expects"]
    title = f"{where}: {lateness.late_ms:,} ms for one in {lateness.each} lines, interval {lateness.interval_ms:,} ms"
    run.tables += [
        Table(f"Measured on {title}", COLUMNS, rows_of(found)),
        Table(f"Computed for {where}", heads, computed(found, lateness.interval_ms)),
    ]
    for row in (*run.tables[-2].rows, *run.tables[-1].rows):
        console.print(*row, sep=", ", soft_wrap=True)


def others(runs: Sequence[Run], name: str) -> list[Run]:
    """Return earlier runs without the tables of that late source; those that have no other are left out."""
    for run in runs:
        run.tables = [table for table in run.tables if f"one source {name}" not in table.title]
    return [run for run in runs if run.tables]


def main() -> None:
    """Measure all variants on both logs, or on LOG; print the tables, and with WRITE=1 put them into the docs."""
    only = os.environ.get("ONLY") or ""
    chosen = [lateness for lateness in LATENESSES if only in ("", lateness.name)]
    if not chosen:
        raise SystemExit(f"ONLY={only!r}: there is {' and '.join(repr(each.name) for each in LATENESSES)}")
    log, seconds = os.environ.get("LOG") or "", float(os.environ.get("SECONDS_EACH") or 8)
    run = taken("confluent-kafka", "rocksdict")
    run.command = f'ONLY="{only}" {run.command}' if only else run.command
    lengths = f"{seconds:g} s a run, and {LATENESSES[1].seconds:g} at least with a very late source"
    run.notes = [f"{lengths}, {RATE:g} lines of {WORDS} words a second."]
    addresses = {} if log.startswith("kafka") else {"the embedded log": EMBEDDED}
    with ExitStack() as stack:
        if log.startswith(KAFKA):
            addresses["Kafka"] = log
        elif log != EMBEDDED:
            addresses["Kafka"] = KAFKA + stack.enter_context(find_broker(loaded=True)).bootstrap
        for (name, address), lateness in itertools.product(addresses.items(), chosen):
            _measure_all(run, name, address, lateness, seconds)
    if os.environ.get("WRITE"):
        write("shared-channel", Kept([*others(read("shared-channel").runs, only), run] if only else [run]))


if __name__ == "__main__":
    main()
