"""Latency of files and tables beside a Kafka topic: ``python -m benchmarks.early_sinks [seconds=8] [rounds=2]``.

A deterministic job of two stages and two partitions on Kafka: a line becomes 20 rows, RATE lines a second. Latency runs
from grete.protocol.report import TaskState
from just before a line's produce to the moment at which a reader outside has seen the last of its rows: a consumer of
committed records, a look at a directory, or a query, all of them every ms. A row that is missing or there twice makes
the run invalid. All kinds of sink take turns; each turn is a job of its own. PostgreSQL: GRETE_POSTGRES, or one that is
started without fsync. Prints one line of JSON for each run, and a table.
"""

import json as plain_json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from benchmarks.on_kafka import Watcher, make_topic
from grete import Files, Input, Job, Output, Record, Store, Table, Task, Topic, int64, json, utf8
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import KAFKA, LogAddress
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskState
from grete.settings import Settings
from grete.testing.broker import find_broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.support.postgres import find_postgres

RUN, KIND, PLACE = (os.environ.get(f"BENCH_{name}", "") for name in ("RUN", "KIND", "PLACE"))
PARTITIONS, ROWS, RATE = 2, 20, 50.0
WARM_S, LIMIT_S = 2.0, 60.0
KINDS = ("topic", "files", "sqlite", "postgres")
DDL = "CREATE TABLE counted (line BIGINT NOT NULL, word TEXT NOT NULL, total BIGINT NOT NULL, place {})"


class Counted(msgspec.Struct):
    """An output."""

    line: int
    word: str
    total: int


lines = Topic(f"bench-lines-{RUN}", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=int64)
counted = Topic(f"bench-counted-{RUN}", key=utf8, value=json(Counted))


def _target() -> Any:
    if KIND == "files":
        return Files(PLACE, json(Counted))
    return counted if KIND == "topic" else Table(PLACE, "counted", json(Counted))


class Split(Task):
    """A line, its number, to words."""

    lines = Input(lines)
    words = Output(words)

    def process(self, record: Record[str, str]) -> None:
        """Send the words."""
        for number in range(ROWS):
            self.words.send(f"word{number}", int(record.value))


class Count(Task):
    """Words to totals."""

    words = Input(words)
    totals = Store("totals", key=utf8, value=int64)
    counted = Output(_target() if KIND else counted)

    def process(self, record: Record[str, int]) -> None:
        """Count one more, and tell."""
        total = self.totals.get(record.key, 0) + 1
        self.totals.put(record.key, total)
        self.counted.send(None, Counted(record.value, record.key, total))


job = Job(f"bench-sinks-{RUN}", [Split, Count], partitions=PARTITIONS, mode="deterministic")


def reader_of(kind: str, place: str, bootstrap: str, topic: str) -> Callable[[], list[int]]:
    """Return a reader of the rows that have become visible since it was last called, by the line of each."""
    if kind == "topic":
        watcher = Watcher(bootstrap, topic, PARTITIONS)
        return lambda: [plain_json.loads(message.value() or b"")["line"] for message in watcher.take(0)]
    if kind == "files":
        seen: set[str] = set()

        def in_files() -> list[int]:
            new = [path for path in Path(place).glob("*.jsonl") if path.name[:1] != "." and path.name not in seen]
            seen.update(path.name for path in new)
            texts = [path.read_bytes() for path in new]
            return [plain_json.loads(line)["line"] for text in texts for line in text.splitlines()]

        return in_files
    if kind == "sqlite":
        connection: Any = sqlite3.connect(place, isolation_level=None)
        query = "SELECT rowid, line FROM counted WHERE rowid > ? ORDER BY rowid"
    else:
        # one task's rows may become visible behind another's with higher places: so all that are there are counted
        connection = psycopg.connect(place, autocommit=True)
        query = "SELECT place, line FROM counted WHERE place > %s ORDER BY place"
    known: set[int] = set()

    def in_table() -> list[int]:
        rows = connection.execute(query, (max(known, default=0) - 2_000,)).fetchall()
        new = [(at, line) for at, line in rows if at not in known]
        known.update(at for at, _ in new)
        return [line for _, line in new]

    return in_table


def measure(kind: str, bootstrap: str, seconds: float, **settings: Any) -> dict[str, Any]:
    """Run one job; return its figures in ms."""
    run = os.urandom(4).hex()
    with tempfile.TemporaryDirectory(prefix="grete-sinks-") as name:
        place = _make_place(kind, Path(name))
        os.environ |= {"BENCH_RUN": run, "BENCH_KIND": kind, "BENCH_PLACE": place}
        source, output = f"bench-lines-{run}", f"bench-counted-{run}"
        make_topic(bootstrap, source, PARTITIONS)
        make_topic(bootstrap, output, PARTITIONS)
        reference = str(Path(__file__))
        directory = JobDirectory(Path(name) / "job", address=LogAddress(KAFKA + bootstrap))
        with LocalJob(
            load_job(reference), reference, directory, Settings(**settings), inputs=OutsideInputs([source])
        ) as running:
            return _figures(_seen(running, directory, source, reader_of(kind, place, bootstrap, output), seconds))


def _make_place(kind: str, directory: Path) -> str:
    if kind == "postgres":
        url = POSTGRES.database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(DDL.format("BIGSERIAL").encode())
        return url
    place = directory / ("rows.db" if kind == "sqlite" else "out")
    if kind == "sqlite":
        database = sqlite3.connect(place)
        database.execute("PRAGMA journal_mode = WAL")  # a reader does not hold the writer up
        database.execute(DDL.format("INT"))
        database.close()
    else:
        place.mkdir()
    return str(place)


def _seen(
    running: LocalJob, directory: JobDirectory, topic: str, look: Callable[[], list[int]], seconds: float
) -> list[float]:
    """Feed lines, and look for their rows; return each line's latency in s. Raises SystemExit: rows are wrong."""
    log = directory.open_log()
    while not all(w.tasks and all(t.status is TaskState.RUNNING for t in w.tasks.values()) for w in _workers(running)):
        running.poll(20)
    total = round((WARM_S + seconds) * RATE)
    sent, seen, rows = [0.0] * total, [0.0] * total, Counter[int]()
    began, number = time.monotonic(), 0
    while number < total or min(rows[line] for line in range(total)) < ROWS:
        now = time.monotonic()
        if number < total and now >= began + number / RATE:
            sent[number] = now
            value, at = b"%d" % number, int(time.time() * 1_000)
            log.produce(0, 0, [ExternalRecord(TopicPartition(topic, number % PARTITIONS), None, value, at)])
            number += 1
        log.poll()
        for line in look():
            rows[line] += 1
            if rows[line] == ROWS:
                seen[line] = time.monotonic()
            if rows[line] > ROWS:
                raise SystemExit(f"line {line} has a row more than {ROWS}: the run does not count")
        running.poll(1)
        if now > began + total / RATE + LIMIT_S:
            raise SystemExit("rows are missing: the run does not count")
    log.close()
    return [at - begun for at, begun in zip(seen, sent, strict=True)][round(WARM_S * RATE) :]


def _workers(running: LocalJob) -> list[Any]:
    return list(running.supervisor.workers.values())


def _figures(latencies: list[float]) -> dict[str, Any]:
    ordered = sorted(1_000 * each for each in latencies)
    return {f"p{q}": round(ordered[min(len(ordered) - 1, len(ordered) * q // 100)], 1) for q in (50, 95, 99)}


def main(arguments: list[str]) -> None:
    """Let all kinds take turns; print."""
    pairs = dict(argument.split("=", 1) for argument in arguments)
    seconds, rounds = float(pairs.get("seconds", 8)), int(pairs.get("rounds", 2))
    deliveries = pairs.get("deliveries", "early,checkpoint").split(",")
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with find_broker(loaded=True) as broker:
        for _ in range(rounds):
            for kind in KINDS:
                for delivery in deliveries if kind != "topic" else ("transactional", "sequenced"):
                    setting = "output_delivery" if kind == "topic" else "sink_delivery"
                    how = {setting: delivery, "checkpoint_interval_ms": 1_000}
                    figures = measure(kind, broker.bootstrap, seconds, **how)
                    found.setdefault((kind, delivery), []).append(figures)
                    print(plain_json.dumps({"kind": kind, "delivery": delivery, **figures}), flush=True)
    load = os.getloadavg()[0]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, load {load:.1f}, Python {platform.python_version()}"
    print(f"\n{machine}; {POSTGRES.how}; {seconds:g} s a run, {rounds} runs each: p50 / p95 / p99 in ms of each run\n")
    print("| sink | delivery |" + " run |" * rounds + "\n| --- | --- |" + " --- |" * rounds)
    for (kind, delivery), runs in found.items():
        cells = [" / ".join(str(figures[f"p{q}"]) for q in (50, 95, 99)) for figures in runs]
        print(f"| {kind} | {delivery} | {' | '.join(cells)} |")


if __name__ == "__main__":
    with find_postgres() as POSTGRES:
        main(sys.argv[1:])
