"""A history of two stages, made by real workers that are killed now and then, and what a reader should see of it."""

import os
import random
import signal
import time
from pathlib import Path

from grete.api.jobs.job import Job
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY, LogAddress
from grete.ports import ExternalRecord, JobLogReader, JobMetadata
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.spark.format.changes import BEGINNING, NOTHING, ChangePoint, later, position_at
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.read.checkpoints.snapshots import contents, live, segments, snapshots_at
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.state.pair_job import job
from tests.worker.workers import LIMIT_S

REFERENCE = "tests.state.pair_job"
STORE = 10  # of the counts
WORDS = 40
SETTINGS = Settings(checkpoint_interval_ms=50, stream_retention_ms=600_000)  # a rescale reads what streams had

Counts = dict[tuple[int, str], int]  # (partition, word) → how often


def feed(metadata: JobMetadata, job: Job, seed: int, count: int) -> None:
    """Send lines of some words to the job's first stage."""
    dice = random.Random(seed)
    lines = [b" ".join(b"word-%d" % dice.randrange(WORDS) for _ in range(3)) for _ in range(count)]
    keys = [b"%d" % (number % 5) for number in range(count)]
    topic, now_ms = all_wirings(job)[0].external[0].topic, int(time.time() * 1000)  # a broker deletes what is old
    metadata.produce_with_meta(
        [
            ExternalRecord(TopicPartition(topic, partition_of(key, job.partitions)), key, line, now_ms)
            for key, line in zip(keys, lines, strict=True)
        ],
        {},
    )


def run(
    directory: Path,
    bursts: int,
    killed_at: frozenset[int] = frozenset(),
    reference: str = REFERENCE,
    address: LogAddress = IN_DIRECTORY,
    settings: Settings = SETTINGS,
) -> None:
    """Feed and run the job; in some bursts a worker is killed as it works."""
    job = load_job(reference)
    job_directory, fed = JobDirectory(directory, address=address), all_wirings(job)[0].external[0].topic
    with LocalJob(job, reference, job_directory, settings, inputs=OutsideInputs((fed,))) as local:
        for burst in range(bursts):
            before = _committed(local.log, job)
            feed(local.metadata, job, burst, 10)
            if burst in killed_at:
                process = local.supervisor.process(burst % job.partitions)
                if process is not None:
                    os.kill(process.pid, signal.SIGKILL)
            deadline = time.monotonic() + LIMIT_S
            while _committed(local.log, job) <= before:
                assert time.monotonic() < deadline, "nothing is committed"
                local.poll(10)
        ends = local.ends()
        while not local.drained(ends):
            local.poll(20)
        local.stop()


def _committed(log: JobLogReader, job: Job) -> int:
    """Return the least checkpoint that the tasks with counts have."""
    lasts = [last_commit(log, wiring.changelog) for wiring in all_wirings(job)[job.tasks_of(1)]]
    return min(-1 if last is None else last.commit.checkpoint_id for last in lasts)


def positions(log: JobLogReader, job: Job = job) -> list[ChangePoint]:
    """Return the position of each checkpoint that can be read, oldest first."""
    stage, found = job.stages[1], [BEGINNING]
    newest = position_at(log, job, stage, None, aligned=True)
    while found[-1] != newest:
        found.append(later(log, job, stage, found[-1], newest, 1, aligned=True))
    return found


def counts_at(log: JobLogReader, position: ChangePoint, job: Job = job) -> Counts:
    """Return the content of the store of counts at a position."""
    found: Counts = {}
    offsets = {number: place.offset for number, place in position.places.items() if place != NOTHING}
    for partition, snapshot in snapshots_at(log, job, job.stages[1], offsets):
        keys, values, _ = live(contents(segments(log, snapshot), frozenset({STORE}))[STORE])
        found |= {(partition, k.decode()): int.from_bytes(v, "big") for k, v in zip(keys, values, strict=True)}
    return found
