"""What most commands begin with: the job's code, its directory, its settings."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from framework.api.job import Job
from framework.errors import ConfigError
from framework.runtime.place import Place, load_job
from framework.settings import Settings, from_environment, with_texts


class Target(NamedTuple):
    """A job to be worked on."""

    job: Job
    reference: str  # how a worker finds the code
    place: Place
    settings: Settings


def target(
    reference: str, directory: Path | None, log: str, sets: Sequence[str] | None, state: Path | None = None
) -> Target:
    """Return what to run. Raises ConfigError."""
    check_log(log)
    job = load_job(reference)
    settings = settings_of(sets)
    return Target(job, reference, Place(directory_of(job, directory), state), settings)


def existing(reference: str, directory: Path | None) -> tuple[Job, Place]:
    """Return a job and its place, which must be there: reading makes nothing. Raises ConfigError."""
    job = load_job(reference)
    path = directory_of(job, directory)
    if not (path / "log.db").exists():
        raise ConfigError(f"no job has run in {path}: give its --directory, or run it first: grete run {reference}")
    return job, Place(path)


def directory_of(job: Job, directory: Path | None) -> Path:
    """Return the directory of a job."""
    return Path(".grete") / job.name if directory is None else directory


def settings_of(sets: Sequence[str] | None) -> Settings:
    """Return defaults, environment (GRETE_…), flags: the later wins. Raises ConfigError."""
    texts = {}
    for text in sets or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text}: write NAME=VALUE, such as --set interval_ms=100")
        texts[name] = value
    return with_texts(from_environment(dict(os.environ)), texts)


def check_log(log: str) -> None:
    """Refuse a log that this release has no driver for. Raises ConfigError."""
    if log.startswith("kafka://"):
        raise ConfigError(f"--log {log}: Kafka is not in this release yet: leave --log out for the embedded log")
    if log != "embedded":
        raise ConfigError(f"--log {log}: the only log of this release is 'embedded'")
