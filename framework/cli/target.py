"""What most commands begin with: the job's code, its directory, its settings."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from framework.api.job import Job
from framework.errors import ConfigError
from framework.logs.open import LogAddress, check_address, open_address
from framework.ports import Log
from framework.runtime.place import Place, load_job
from framework.settings import Settings, from_environment, with_texts


class Target(NamedTuple):
    """A job to be worked on."""

    job: Job
    reference: str  # how a worker finds the code
    place: Place
    settings: Settings


def target(
    reference: str, directory: Path | None, address: LogAddress, sets: Sequence[str] | None, state: Path | None = None
) -> Target:
    """Return what to run. Raises ConfigError."""
    check_address(address)
    job = load_job(reference)
    settings = settings_of(sets)
    return Target(job, reference, Place(directory_of(job, directory, address), state, address), settings)


def existing(reference: str, directory: Path | None, address: LogAddress) -> tuple[Job, Place]:
    """Return a job and its place, where it has run: reading makes nothing. Raises ConfigError."""
    check_address(address)
    job = load_job(reference)
    path = directory_of(job, directory, address)
    if not (path / "log.db" if address.embedded else path / "state").exists():
        raise ConfigError(f"no job has run in {path}: give its --directory, or run it first: grete run {reference}")
    return job, Place(path, address=address)


def existing_log(reference: str, directory: Path | None, address: LogAddress) -> tuple[Job, Log]:
    """Return a job and its log, which must be there. Raises ConfigError."""
    if address.embedded:
        job, place = existing(reference, directory, address)
        return job, place.open_log(create=False)
    check_address(address)
    job = load_job(reference)
    log = open_address(address, Path())
    if log.partitions(job.topology().changelog(0)) is None:
        raise ConfigError(
            f"job {job.name!r} has not run on {address.url}: check the address, or run it first: "
            f"grete run {reference} --log {address.url}"
        )
    return job, log


def directory_of(job: Job, directory: Path | None, address: LogAddress) -> Path:
    """Return the directory of a job: by default one for each log, so that two of them share no state."""
    if directory is not None:
        return directory
    return Path(".grete") / (job.name if address.embedded else f"{job.name}-{digest(address.url)}")


def digest(text: str | bytes) -> str:
    """Return a few characters that stand for a text, in the name of a directory."""
    return hashlib.blake2b(os.fsencode(text), digest_size=4).hexdigest()


def settings_of(sets: Sequence[str] | None) -> Settings:
    """Return defaults, environment (GRETE_…), flags: the later wins. Raises ConfigError."""
    texts = {}
    for text in sets or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text}: write NAME=VALUE, such as --set interval_ms=100")
        texts[name] = value
    return with_texts(from_environment(dict(os.environ)), texts)
