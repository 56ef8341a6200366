"""The topics that records have named, as the job's metadata keep them: one list for all its workers and machines."""

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from grete.api.jobs.job import Job
from grete.api.jobs.outside_topics import tasks_writing
from grete.api.topics.topic import Topic, TopicPattern
from grete.core.changelog.damage import entry as reading
from grete.errors import ConfigError, TransientError
from grete.job.directory import JobDirectory
from grete.ports import JobLog, JobLogReader, JobMetadata, MetadataReader

NAMED = "named topics"  # the key in the job metadata
_FORMAT = 1  # of a stored entry: a reader refuses another one

Named = Mapping[str, Mapping[str, int]]  # pattern → topic → partitions that the job writes to

logger = logging.getLogger("grete")


def named_topics(metadata: MetadataReader) -> Named:
    """Return the topics that records of a job have named so far. Raises ConfigError: a newer release wrote them."""
    return _decoded(metadata.meta_get(NAMED))


def check_bounds(job: Job, metadata: MetadataReader) -> None:
    """Refuse a bound below the number of topics that there are. Raises ConfigError."""
    named = named_topics(metadata)
    for pattern in job.patterns().values():
        if (count := len(named.get(pattern.pattern, ()))) > pattern.at_most:
            raise ConfigError(
                f"job {job.name!r} has written to {count} topics {pattern.pattern!r}, and at_most={pattern.at_most} "
                f"now: put back {count} or more"
            )


def topics_there(job: Job, log: JobLogReader) -> dict[str, Topic[Any, Any]]:
    """Return name → topic of those that records have named, and that are there."""
    patterns = job.patterns()
    named = named_topics(log.read_metadata(job.name)) if patterns else {}
    return {
        topic: Topic(topic, pattern.key, pattern.value)
        for name, pattern in patterns.items()
        for topic in named.get(name, ())
        if log.partitions(topic) is not None
    }


class JobTopicNames:
    """TopicNames of a worker. A topic is noted before it is made, and made before a record goes there."""

    def __init__(self, job: Job, log: JobLog, metadata: JobMetadata, job_directory: JobDirectory) -> None:
        """Read which topics there are. Raises ConfigError."""
        self._job, self._log, self._metadata, self._job_directory = job, log, metadata, job_directory
        self._named = named_topics(metadata) if job.patterns() else {}

    def partitions(self, pattern: TopicPattern[Any, Any], topic: str, tasks: int) -> int:
        """Return the number of partitions that the job writes to, of a topic that is there now."""
        count = self._named.get(pattern.pattern, {}).get(topic) or self._note(pattern, topic, tasks)
        found = self._log.partitions(topic)
        if found is not None and found < count:
            raise ConfigError(
                f"output topic {topic} has {found} partitions, and job {self._job.name!r} has written to {count}: it "
                f"was created again: give it as many again: kafka-topics.sh --alter --topic {topic} --partitions "
                f"{count}",
                topic=topic,
            )
        self._log.create_topic(topic, found or count, plain=True)
        self._log.watch([topic])
        return count

    def _note(self, pattern: TopicPattern[Any, Any], topic: str, tasks: int) -> int:
        """Note a topic, unless another process has; return its partitions. Raises TaskError."""
        if len(self._named.get(pattern.pattern, ())) >= pattern.at_most:  # they never become fewer
            raise pattern.one_too_many(topic)
        widest = max(tasks, tasks_writing(self._job.stages, pattern.pattern))
        with self._written() as metadata:
            for _ in range(pattern.at_most + 1):  # each attempt that fails is a topic that another process has noted
                raw = metadata.meta_get(NAMED)
                self._named = named = _decoded(raw)
                known = named.get(pattern.pattern, {})
                if topic in known:
                    return known[topic]
                if len(known) >= pattern.at_most:
                    raise pattern.one_too_many(topic)
                count = self._log.partitions(topic) or pattern.partitions or widest
                named = {**named, pattern.pattern: {**known, topic: count}}
                if metadata.pin({NAMED: _encoded(named)}, raw):
                    self._named = named
                    logger.info("a record has named a new topic", extra={"topic": topic, "partitions": count})
                    return count
        raise TransientError(f"topic {topic} could not be noted: other processes of the job note topics all the time")

    @contextlib.contextmanager
    def _written(self) -> Iterator[JobMetadata]:
        """Yield the metadata to write: on Kafka of another log, as this one has the answers to the tasks' sends."""
        if self._job_directory.address.embedded:
            yield self._metadata
            return
        log = self._job_directory.open_log(group=self._job.name)
        with contextlib.closing(log):
            yield log.open_metadata(self._job.name)


def _encoded(named: Named) -> bytes:
    return json.dumps({"format": _FORMAT, "topics": named}, sort_keys=True).encode()


def _decoded(raw: bytes | None) -> Named:
    if raw is None:
        return {}
    with reading(NAMED):
        entry = json.loads(raw)
        if entry["format"] == _FORMAT:
            topics: Named = entry["topics"]
            return topics
    raise ConfigError(
        f"the job's metadata say of the topics that records have named what this release cannot read: {raw[:100]!r}: "
        "run the job with the release that wrote it, or a later one"
    )
