"""Recovery time by size of the index: ``python -m benchmarks.paper.recovery LOG KEYS ROUNDS DOCUMENTS``.

The index of that many postings is written into the changelogs, and workers without any state restore it. Then they
process documents, and all are killed by SIGKILL, again and again. By turns they come back on the same host, where their
stores are, and on another one: there are none, so each store is deleted before its worker starts. The time is that from
the kill until every task takes input again.
"""

import itertools
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.latency.articles import paragraphs
from benchmarks.latency.ends import Sender, sender
from benchmarks.paper.cell import JOB
from benchmarks.restoring import LIMIT_S
from grete.api.jobs.job import Job
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY, KAFKA, LogAddress
from grete.ports import JobLog
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.state.read.local_reader import LocalReader
from grete.state.write.bulk.bulk_write import begin, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt
from grete.stores.store_directory import wipe_directory
from grete.worker.supervisor.local_job import LocalJob
from tasks.inverted_index import END, Count

PARTITIONS = 2
WORD_DOCUMENTS = 100  # documents of a word
COUNT = Count(WORD_DOCUMENTS, WORD_DOCUMENTS * 3)
LOOKED_AT = 1_000  # postings that are compared afterwards


def key_of(number: int) -> tuple[str, str]:
    """Return the word and the document of a posting that was written before the job ran."""
    return f"word{number // WORD_DOCUMENTS:08d}", f"before{number % WORD_DOCUMENTS}"


def positions_of(number: int) -> list[int]:
    """Return the positions of that posting: as many in each, but hardly two alike."""
    return [number % 97, 100 + number % 397, 500 + number % 1_009]


def fill(log: JobLog, job: Job, settings: Settings, keys: int) -> None:
    """Write the postings, and the counts of their words, into the changelogs of the second stage."""
    ids = job.stage("index").store_ids()
    bulk_write = begin(log, job, settings)
    attempts = [
        Attempt(log, bulk_write, number, 1, reset=sorted(ids.values()) if task.wiring.name.startswith("index") else ())
        for number, task in enumerate(bulk_write.tasks)
    ]
    count = msgspec.json.encode(COUNT)
    stores = [ids["postings"]] * WORD_DOCUMENTS + [ids["words"]]
    for first in range(0, keys, WORD_DOCUMENTS):
        word, numbers = key_of(first)[0].encode(), range(first, first + WORD_DOCUMENTS)
        rows = [END.join(key_of(number)).encode() for number in numbers]
        positions = [b"[%d,%d,%d]" % tuple(positions_of(number)) for number in numbers]
        attempts[PARTITIONS + partition_of(word, PARTITIONS)].add(stores, [*rows, word], [*positions, count])
    commit(log, bulk_write, [attempt.close() for attempt in attempts], settings=settings, full=True)


def recovery(address: str, directory: Path, keys: int, rounds: int, documents: int) -> dict[str, Any]:
    """Return the seconds of each round on the same host and on another one, and the size of the stores."""
    os.environ |= {"BENCH_RUN": os.urandom(4).hex(), "BENCH_PARTITIONS": str(PARTITIONS), "BENCH_MODE": "exactly-once"}
    job, settings = load_job(JOB), Settings()
    external = f"latency-documents-{os.environ['BENCH_RUN']}"
    kafka = address.startswith(KAFKA)
    job_directory = JobDirectory(directory / "job", address=LogAddress(address) if kafka else IN_DIRECTORY)
    log = job_directory.open_log()
    prepare(job, log, job_directory, settings, [external])
    fill(log, job, settings, keys)
    log.close()
    found: dict[str, list[float]] = {"same_host_s": [], "other_host_s": []}
    with LocalJob(job, JOB, job_directory, settings) as local:
        _until_taking_input(local)
        texts = iter(enumerate(paragraphs()))
        for round_ in range(2 * rounds):
            place = address if kafka else str(job_directory.directory / "log.db")
            _process(local, sender(place, external), list(itertools.islice(texts, documents)))
            wiped = bool(round_ % 2)
            found["other_host_s" if wiped else "same_host_s"].append(_killed(local, job_directory, wiped=wiped))
        local.stop()
    size = sum(file.stat().st_size for file in job_directory.state_directory.rglob("*") if file.is_file())
    _check(job_directory, job, keys)
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    return {**medians, "state_mib": size / (1 << 20), "rounds": rounds, "load": os.getloadavg()[0]}


def _process(local: LocalJob, writer: Sender, documents: list[tuple[int, str]]) -> None:
    """Let the job commit some documents: what a kill leaves to redo, and what ends a row of crashes."""
    for number, text in documents:
        writer.send(number % PARTITIONS, b"%d" % number, text.encode())
    writer.flush()
    writer.close()
    begun, before = time.monotonic(), local.records_committed()
    workers = local.supervisor.workers.values()
    while local.records_committed() < before + len(documents) or any(worker.restarts.crashes for worker in workers):
        local.poll(20)
        _bound(begun)


def _killed(local: LocalJob, job_directory: JobDirectory, *, wiped: bool) -> float:
    begun = time.monotonic()
    for partition in range(PARTITIONS):
        local.supervisor.kill(partition)
    if wiped:
        for partition in range(PARTITIONS):
            for stage in local.job.stages:
                wipe_directory(job_directory.state(f"{stage.name}-{partition}"))
        begun = time.monotonic()
    restores = _until_taking_input(local)
    if (restores > 0) != wiped:
        raise SystemExit(f"{restores} tasks have read their changelogs from the start: the run does not count")
    return time.monotonic() - begun


def _until_taking_input(local: LocalJob) -> int:
    """Return the number of tasks that have restored all of their state."""
    begun = time.monotonic()
    local.poll(10)
    while not local.supervisor.takes_input:
        local.poll(10)
        _bound(begun)
    tasks = [task for worker in local.supervisor.workers.values() for task in worker.reports.tasks.values()]
    return sum(task.counters.get("restores", 0) for task in tasks)


def _bound(begun: float) -> None:
    if time.monotonic() - begun > LIMIT_S:
        raise SystemExit(f"no end for {LIMIT_S:.0f} s: the run does not count")


def _check(job_directory: JobDirectory, job: Job, keys: int) -> None:
    """Look at some of the postings."""
    with LocalReader(job_directory.state_directory, job) as reader:
        postings, words = reader.store("postings"), reader.store("words")
        for number in random.Random(2).sample(range(keys), min(keys, LOOKED_AT)):
            word, document = key_of(number)
            partition = partition_of(word.encode(), PARTITIONS)
            found = reader.at(postings, word + END + document, partition), reader.at(words, word, partition)
            if found != (positions_of(number), COUNT):
                raise SystemExit(f"posting {number} of {word} is wrong after the recovery: the run does not count")


def main(arguments: list[str]) -> None:
    """Run one size in a directory of its own."""
    directory = Path(tempfile.mkdtemp(prefix="grete-recovery-"))
    try:
        print(json.dumps(recovery(arguments[0], directory, *map(int, arguments[1:4]))))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
