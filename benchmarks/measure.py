"""One measurement a process: ``python -m benchmarks.measure NAME key=value …`` prints one JSON object."""

import json
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.jobs import job
from benchmarks.skewed import job as skewed_job
from grete import int64
from grete.core.supervision.assignment import Assignment
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded.log import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.report import WorkerReport
from grete.settings import Settings, with_texts
from grete.state.read.checkpoints.commits import last_commit
from grete.stores.store_directory import wipe_directory
from grete.worker.process.worker import OpenedLog, Worker
from grete.worker.supervisor.completion import reached
from grete.worker.supervisor.supervisor import Supervisor
from tests.support.committed import all_committed

LINES, WORDS, TOTALS = (TopicPartition(name, 0) for name in ("lines", "words", "totals"))
WORDS_A_LINE = 8
Result = dict[str, float | str]


def fill(log: EmbeddedLog, words: int, keys: int, partition: int = 0) -> int:
    """Put lines of random words into the log; return how many lines."""
    rng = random.Random(1)
    vocabulary = [f"word-{number}" for number in range(keys)]
    lines = words // WORDS_A_LINE
    for first in range(0, lines, 1000):
        texts = (" ".join(rng.choices(vocabulary, k=WORDS_A_LINE)) for _ in range(min(1000, lines - first)))
        log.produce(
            0,
            0,
            [
                ExternalRecord(TopicPartition("lines", partition), b"%d" % (first + i), text.encode(), 1_000)
                for i, text in enumerate(texts)
            ],
        )
        log.poll()
    return lines


def run_until(worker: Worker, done: Callable[[], bool]) -> float:
    """Run a worker until ``done``; return the seconds from its start to that moment."""
    start = time.perf_counter()
    reached: list[float] = []

    def report(_: WorkerReport) -> None:
        if not reached and done():
            reached.append(time.perf_counter() - start)
            worker.stop()

    worker.reports.send = report
    worker.run()
    return reached[0]


def drained(worker: Worker, lines: int) -> Callable[[], bool]:
    """Return a test of whether both tasks have committed all lines."""
    source, sink = worker.drivers

    def done() -> bool:
        taken = source.core.commits.committed
        if taken is None or not taken.external or taken.external[0].offset < lines:
            return False
        counted = sink.core.commits.committed
        return counted is not None and counted.checkpoint_id >= taken.checkpoint_id

    return done


def throughput(directory: Path, words: int, keys: int, settings: Settings) -> Result:
    """Both stages in one worker: words a second from the first claim to the last commit."""
    job_directory = JobDirectory(directory / "job")
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(job, log)
    lines = fill(log, words, keys)
    worker = Worker(job, [0], OpenedLog(log), job_directory, settings)
    committed = drained(worker, lines)
    # at least once, two tasks' checkpoints say nothing of each other: the totals themselves must be there
    seconds = run_until(worker, lambda: committed() and log.bounds(TOTALS)[1] >= words)
    totals = log.bounds(TOTALS)[1]
    if totals < words or (settings.processing_guarantee == "exactly-once" and totals != words):
        raise SystemExit(f"{totals} totals for {words} words: the measurement does not count")
    seen = worker.drivers[1].core.seen
    return {
        "words_per_s": words / seconds,
        "early_share": seen["early records"] / words,
        "early_on_disk_share": seen["early records on disk"] / words,
        "seeks_back": seen["seeks back"],
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def stopped(directory: Path, words: int, keys: int, settings: Settings) -> Result:
    """Both stages in one worker that is stopped once it has read all: words a CPU second, whatever the interval is."""
    job_directory = JobDirectory(directory / "job")
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(job, log)
    lines = fill(log, words, keys)
    worker = Worker(job, [0], OpenedLog(log), job_directory, settings)
    source = worker.drivers[0]
    before = time.process_time()
    run_until(worker, lambda: source.running and source.core.external.position[LINES] >= lines)
    seconds = time.process_time() - before
    totals, commits = log.bounds(TOTALS)[1], source.parts.counters["commits"]
    if totals != words:
        raise SystemExit(f"{totals} totals for {words} words: the measurement does not count")
    return {"words_per_cpu_s": words / seconds, "commits": commits}


def skewed(directory: Path, words: int, keys: int, settings: Settings) -> Result:
    """Two workers, the source of partition 1 slow: what comes early, and what that costs."""
    job_directory = JobDirectory(directory / "job")
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(skewed_job, log)
    lines = [fill(log, words // 2, keys, partition) for partition in (0, 1)]
    ends = {TopicPartition("lines", partition): count for partition, count in enumerate(lines)}
    supervisor = Supervisor(job_directory, "benchmarks.skewed", Assignment(frozenset({0, 1})), settings)
    start = time.perf_counter()
    checkpoint_id = None
    while checkpoint_id is None or not all_committed(log, skewed_job, checkpoint_id):
        supervisor.poll(20)
        checkpoint_id = reached(log, skewed_job, ends)
    seconds = time.perf_counter() - start
    seen: Counter[str] = Counter()
    for worker in supervisor.workers.values():
        for task in worker.reports.tasks.values():
            seen.update(task.counters)
    supervisor.stop()
    supervisor.close()
    totals = sum(log.bounds(TopicPartition("totals", partition))[1] for partition in (0, 1))
    if totals != words:
        raise SystemExit(f"{totals} totals for {words} words: the measurement does not count")
    return {
        "words_per_s": words / seconds,
        "early_share": seen["early records"] / words,
        "early_on_disk_share": seen["early records on disk"] / words,
        "seeks_back": seen["seeks back"],
        "frames_skipped": seen["early frames skipped"],
    }


def bare(directory: Path, words: int, keys: int) -> Result:
    """The same work as a plain loop over the same log: plain records between the stages, a dict for state."""
    log = EmbeddedLog(JobDirectory(directory / "bare").directory / "log.db")
    for topic in (LINES, WORDS, TOTALS):
        log.create_topic(topic.topic, 1)
    lines = fill(log, words, keys)
    encode, decode = int64.encode, int64.decode
    totals: Counter[str] = Counter()
    at_line = at_word = 0
    start = time.perf_counter()
    while at_line < lines or at_word < words:
        rows = log.read(LINES, at_line, 64 * 1024)
        at_line += len(rows)
        one = encode(1)
        out = [
            ExternalRecord(WORDS, w.encode(), one, row.timestamp_ms)
            for row in rows
            for w in (row.value or b"").decode().split()
        ]
        rows = log.read(WORDS, at_word, 256 * 1024)
        at_word += len(rows)
        for _, _, timestamp, key, value, _ in rows:
            word = (key or b"").decode()
            totals[word] += decode(value or b"")
            out.append(ExternalRecord(TOTALS, key, encode(totals[word]), timestamp))
        log.produce(0, 0, out)
        log.poll()
    seconds = time.perf_counter() - start
    return {"words_per_s": words / seconds, "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def restore(directory: Path, keys: int) -> Result:
    """Coming back with ``keys`` words: the store kept (redo), then deleted (restore)."""
    job_directory = JobDirectory(directory / "job")
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(job, log)
    settings = with_texts(Settings(), {"changelog_retention_ms": "0"})
    lines = 0
    for first in range(0, keys, 1000):  # every word once, 80 bytes
        texts = [
            " ".join(f"{n:080d}" for n in range(f, f + WORDS_A_LINE)) for f in range(first, first + 1000, WORDS_A_LINE)
        ]
        log.produce(0, 0, [ExternalRecord(LINES, None, text.encode(), 1_000) for text in texts])
        lines += len(texts)
    log.poll()
    worker = Worker(job, [0], OpenedLog(log), job_directory, settings)
    run_until(worker, drained(worker, lines))
    worker.close()
    result: Result = {}
    for name in ("redo", "restore"):
        log = EmbeddedLog(job_directory.directory / "log.db")
        if name == "restore":
            for wiring in ("split-0", "count-0"):
                wipe_directory(job_directory.state(wiring))
        worker = Worker(job, [0], OpenedLog(log), job_directory, settings)
        sink = worker.drivers[1]
        seconds = run_until(worker, lambda driver=sink: driver.running)  # type: ignore[misc]  # mypy gives a default of a lambda no type
        records = sink.parts.counters["restored records"]
        result |= {f"{name}_s": seconds, f"{name}_records": records, f"{name}_records_per_s": records / seconds}
        assert sink.parts.counters["restores"] == (name == "restore"), sink.parts.counters
        worker.close()
    last = last_commit(job_directory.open_log(create=False), worker.drivers[1].wiring.changelog)
    result["version"] = 0 if last is None else last.commit.checkpoint_id
    return result


def main(arguments: list[str]) -> None:
    """Run one measurement in a directory of its own."""
    name, pairs = arguments[0], dict(argument.split("=", 1) for argument in arguments[1:])
    words, keys = int(pairs.pop("words", 400_000)), int(pairs.pop("keys", 10_000))
    directory = Path(tempfile.mkdtemp(prefix="grete-bench-"))
    try:
        if name == "throughput":
            result = throughput(directory, words, keys, with_texts(Settings(), pairs))
        elif name == "stopped":
            result = stopped(directory, words, keys, with_texts(Settings(), pairs))
        elif name == "skewed":
            result = skewed(directory, words, keys, with_texts(Settings(), pairs))
        elif name == "bare":
            result = bare(directory, words, keys)
        elif name == "restore":
            result = restore(directory, keys)
        else:
            raise SystemExit(f"no measurement {name!r}: throughput, stopped, skewed, bare, restore")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
