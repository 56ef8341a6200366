"""Finds what most commands need: the job's code, its directory, its log, its settings."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from grete.api.jobs.job import Job
from grete.errors import ConfigError
from grete.job.directory import JobDirectory, directory_of
from grete.job.loader import load_job
from grete.logs.address import LogAddress, check_address, open_address, open_reader
from grete.ports import JobLog, JobLogReader
from grete.settings import Settings
from grete.state.pins.graph_pinning import know_graph
from grete.state.pins.pinning import check_readable
from grete.state.pins.pins import put_in_place


class JobTarget(NamedTuple):
    """A job to be worked on."""

    job: Job
    reference: str  # how a worker finds the code
    job_directory: JobDirectory
    settings: Settings


def options_for(address: LogAddress, directory: Path | None) -> str:
    """Return the options that name a log and a directory, None: the usual one."""
    options = "" if address.embedded else f" --log {address.url}"
    if address.config is not None:
        options += f" --kafka-config {address.config}"
    return options if directory is None else f"{options} --directory {directory}"


class NamedJob(NamedTuple):
    """A job as a command line names it: its code is loaded, and its log opened, by the methods. They raise ConfigError.

    ``directory``: as --directory gives it, None: the usual one. ``read_settings`` raises ConfigError.
    """

    reference: str
    directory: Path | None
    address: LogAddress
    read_settings: Callable[[], Settings]

    @property
    def settings(self) -> Settings:
        """The settings of the command line, over those of the environment and of a file."""
        return self.read_settings()

    def start(self, reference: str, directory: Path | None) -> str:
        """Return the command that starts a job on this log; on Kafka as a member, since others may be to share it."""
        command = "up" if self.address.on_kafka else "run"
        return f"grete {command} {reference}{options_for(self.address, directory)}"

    def target(self, state: Path | None = None) -> JobTarget:
        """Return the job to run. ``state``: the directory of its stores, None: that of the job."""
        check_address(self.address)
        job = load_job(self.reference)
        return JobTarget(job, self.reference, self.place(job, state), self.settings)

    def place(self, job: Job, state: Path | None = None, *, make: bool = True) -> JobDirectory:
        """Return the directory of the job. ``make``: create it if it is not there."""
        return JobDirectory(directory_of(job, self.directory, self.address), state, self.address, make=make)

    @contextlib.contextmanager
    def read(self) -> Iterator[tuple[Job, JobLogReader]]:
        """Yield the job and its log, which must be there, for a command that reads: it makes and writes nothing."""
        with self.compare() as (job, log):
            self._check_has_run(job, log)
            know_graph(job, log)
            yield job, log

    @contextlib.contextmanager
    def compare(self) -> Iterator[tuple[Job, JobLogReader]]:
        """Yield the job and its log, which must be there, though its code may not fit."""
        job, path = self._job_and_path()
        with contextlib.closing(open_reader(self.address, path)) as log:
            yield job, log

    @contextlib.contextmanager
    def write(self) -> Iterator[tuple[Job, JobLog]]:
        """Yield the job and its log, which must be there, for a command that writes to it."""
        with self.change() as (job, log):
            self._check_has_run(job, log)
            know_graph(job, log)
            put_in_place(log, job.name, log.open_metadata(job.name))
            yield job, log

    @contextlib.contextmanager
    def change(self) -> Iterator[tuple[Job, JobLog]]:
        """Yield the job and its log, which must be there, to make the code fit."""
        job, path = self._job_and_path()
        with contextlib.closing(open_address(self.address, path, create=False)) as log:
            yield job, log

    def _job_and_path(self) -> tuple[Job, Path]:
        """Return the job and the file of its embedded log."""
        check_address(self.address)
        job = load_job(self.reference)
        path = directory_of(job, self.directory, self.address) / "log.db"
        if self.address.embedded and not path.exists():
            raise ConfigError(
                f"no job has run in {path.parent}: give its --directory, or run it first: grete run {self.reference}"
            )
        return job, path

    def _check_has_run(self, job: Job, log: JobLogReader) -> None:
        """Check that the job has run there, and that its code can read the state that it has."""
        if not self.address.embedded and log.partitions(job.topology().changelog(0)) is None:
            url = self.address.url
            raise ConfigError(
                f"job {job.name!r} has not run on {url}: check the address, or run it first: "
                f"grete run {self.reference} --log {url}"
            )
        check_readable(job, log)
