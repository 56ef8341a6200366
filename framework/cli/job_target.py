"""Finds what most commands need: the job's code, its directory, its settings."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from grete.api.job import Job
from grete.errors import ConfigError
from grete.job.directory import JobDirectory, directory_of
from grete.job.loader import load_job
from grete.logs.address import LogAddress, check_address, open_address, open_reader
from grete.ports import JobLog, JobLogReader
from grete.settings import Settings
from grete.state.graph_pinning import know_graph
from grete.state.pinning import check_readable
from grete.state.pins import put_in_place


class JobTarget(NamedTuple):
    """A job to be worked on."""

    job: Job
    reference: str  # how a worker finds the code
    job_directory: JobDirectory
    settings: Settings


def target(
    reference: str, directory: Path | None, address: LogAddress, settings: Settings, state: Path | None = None
) -> JobTarget:
    """Return the job to run. Raises ConfigError."""
    check_address(address)
    job = load_job(reference)
    return JobTarget(job, reference, JobDirectory(directory_of(job, directory, address), state, address), settings)


@contextlib.contextmanager
def existing_log(reference: str, directory: Path | None, address: LogAddress) -> Iterator[tuple[Job, JobLogReader]]:
    """Yield a job and its log, which must be there, for a command that reads: it makes and writes nothing.

    Raises ConfigError.
    """
    job, path = _job_and_path(reference, directory, address)
    with contextlib.closing(open_reader(address, path)) as log:
        _check_has_run(job, log, reference, address)
        know_graph(job, log)
        yield job, log


@contextlib.contextmanager
def log_to_compare(reference: str, directory: Path | None, address: LogAddress) -> Iterator[tuple[Job, JobLogReader]]:
    """Yield a job and its log, which must be there, though its code may not fit. Raises ConfigError."""
    job, path = _job_and_path(reference, directory, address)
    with contextlib.closing(open_reader(address, path)) as log:
        yield job, log


@contextlib.contextmanager
def existing_log_to_write(reference: str, directory: Path | None, address: LogAddress) -> Iterator[tuple[Job, JobLog]]:
    """Yield a job and its log, which must be there, for a command that writes to it. Raises ConfigError."""
    job, path = _job_and_path(reference, directory, address)
    with contextlib.closing(open_address(address, path, create=False)) as log:
        _check_has_run(job, log, reference, address)
        know_graph(job, log)
        put_in_place(log, job.name, log.open_metadata(job.name))
        yield job, log


@contextlib.contextmanager
def log_to_change(reference: str, directory: Path | None, address: LogAddress) -> Iterator[tuple[Job, JobLog]]:
    """Yield a job and its log, which must be there, to make the code fit. Raises ConfigError."""
    job, path = _job_and_path(reference, directory, address)
    with contextlib.closing(open_address(address, path, create=False)) as log:
        yield job, log


def _job_and_path(reference: str, directory: Path | None, address: LogAddress) -> tuple[Job, Path]:
    """Return a job and the file of its embedded log."""
    check_address(address)
    job = load_job(reference)
    path = directory_of(job, directory, address) / "log.db"
    if address.embedded and not path.exists():
        raise ConfigError(
            f"no job has run in {path.parent}: give its --directory, or run it first: grete run {reference}"
        )
    return job, path


def _check_has_run(job: Job, log: JobLogReader, reference: str, address: LogAddress) -> None:
    """Check that the job has run there, and that its code can read the state that it has."""
    if not address.embedded and log.partitions(job.topology().changelog(0)) is None:
        raise ConfigError(
            f"job {job.name!r} has not run on {address.url}: check the address, or run it first: "
            f"grete run {reference} --log {address.url}"
        )
    check_readable(job, log)
