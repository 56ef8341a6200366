"""The topics of a job: creating the missing ones, checking the others."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from framework.api.job import Job
from framework.errors import ConfigError
from framework.job.directory import missing_topics
from framework.ports import Log

if TYPE_CHECKING:
    pass


def create_topics(job: Job, log: Log, fed: Collection[str] | None = None) -> None:
    """Create every missing topic of the job (K1), of its external inputs those that are ``fed`` here; None: all.

    Raises ConfigError, before it creates any, if one of the others is missing, or if a topic does not fit.
    """
    for topic, partitions, plain in missing_topics(job, log, fed):
        log.create_topic(topic, partitions, plain=plain)


def _check_external(job: Job, topic: str, needed: int, found: int | None, *, fed: bool) -> None:
    if found is None and not fed:
        raise ConfigError(
            f"there is no topic {topic}, which job {job.name!r} reads: check its name, or create it: "
            f"kafka-topics.sh --create --topic {topic} --partitions {needed}"
        )
    if found not in (None, needed):
        raise ConfigError(
            f"topic {topic} has {found} partitions, and job {job.name!r} has {needed}: write Job(…, partitions={found})"
        )
