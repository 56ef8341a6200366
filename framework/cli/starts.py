"""Reads --from: the time at which a new job begins to read a topic."""

from collections.abc import Sequence
from datetime import datetime

from grete.api.jobs.job import Job
from grete.cli.feeding import external_inputs
from grete.clock_text import time_of
from grete.errors import ConfigError


def starts_of(job: Job, options: Sequence[str]) -> dict[str, datetime]:
    """Return topic → time. Raises ConfigError: no input from outside, no time with a zone, a topic given twice."""
    starts = dict[str, datetime]()
    for option in options:
        topic, at, text = option.rpartition("@")
        if not at:
            raise ConfigError(f"--from {option}: write TOPIC@TIME, with a time such as 2026-11-01T00:00Z{_topics(job)}")
        if topic not in external_inputs(job):
            raise ConfigError(f"--from {option}: {_why_not(job, topic)}{_topics(job)}")
        if topic in starts:
            raise ConfigError(
                f"--from names topic {topic!r} twice: {starts[topic].isoformat()} and {text}: leave one of them out"
            )
        starts[topic] = _time(option, text)
    return starts


def _topics(job: Job) -> str:
    return f"; TOPIC is one of {', '.join(external_inputs(job)) or 'none: this job reads nothing from outside'}"


def _why_not(job: Job, topic: str) -> str:
    writers = [stage.shown for stage in job.stages if topic in {each.name for each in stage.topics_written()}]
    if any(topic in {each.name for each in stage.topics_read()} for stage in job.stages):
        return f"stage {writers[0]!r} writes topic {topic!r}, and between stages every record is read"
    return f"job {job.name!r} {'writes' if writers else 'does not read'} topic {topic!r}"


def _time(option: str, text: str) -> datetime:
    try:
        return time_of(text)
    except ValueError as error:
        raise ConfigError(f"--from {option}: {error}") from error
