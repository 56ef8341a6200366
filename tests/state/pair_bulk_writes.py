"""Runs the pair job, or one like it, with real workers over some lines."""

from pathlib import Path

from grete.api.jobs.job import Job
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.job.topics import missing_topics
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob

Lines = tuple[tuple[str, str], ...]  # (key, text)


def feed(directory: Path, job: Job, *lines: tuple[str, str]) -> None:
    """Append lines to the topic that the job reads, by their keys."""
    log = EmbeddedLog(JobDirectory(directory).directory / "log.db")
    for topic, partitions, plain in missing_topics(job, log, metadata=log.read_metadata(job.name)):
        log.create_topic(topic, partitions, plain=plain, grow=True)
    for key, text in lines:
        partition = TopicPartition("observed", partition_of(key.encode(), job.partitions))
        log.produce_with_meta([ExternalRecord(partition, key.encode(), text.encode(), 1)], {})
    log.close()


def run(reference: str, directory: Path, *lines: tuple[str, str], checkpoint_interval_ms: int = 50) -> dict[str, int]:
    """Let workers take these lines until they are used up; return the counts that they have then."""
    job = load_job(reference)
    feed(directory, job, *lines)
    job_directory = JobDirectory(directory)
    with LocalJob(job, reference, job_directory, Settings(checkpoint_interval_ms=checkpoint_interval_ms)) as local:
        ends = local.ends()
        while not local.drained(ends):
            local.poll(20)
        local.stop()
    return counts(job, job_directory.state_directory)


def counts(job: Job, directory: Path) -> dict[str, int]:
    """Return the content of the stores of the second stage."""
    with LocalReader(directory, job) as reader:
        return dict(reader.all(reader.store("counts")))
