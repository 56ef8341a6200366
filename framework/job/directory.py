"""The directory of a job on this machine: its log, its state, the logs of its workers."""

import hashlib
import os
from pathlib import Path

from grete.api.jobs.job import Job
from grete.errors import ConfigError
from grete.file_lock import open_lock, try_lock
from grete.logs.address import IN_DIRECTORY, LogAddress, check_address, open_address
from grete.logs.patience import Patience
from grete.ports import READS, JobLog, Reads
from grete.stores.store_directory import make_private


class JobDirectory:
    """The directory of one job: embedded log ``log.db``, the tasks' stores below ``state``, worker logs below ``logs``.

    The parameter ``state`` names another directory for the stores: they are a cache of the changelogs. With ``address``
    the log is elsewhere.
    """

    def __init__(
        self, directory: Path, state: Path | None = None, address: LogAddress = IN_DIRECTORY, *, make: bool = True
    ) -> None:
        """Make the directory, readable by this user only, unless ``make`` is False. Raises ConfigError if it cannot."""
        check_address(address)
        self.directory = directory
        self.state_directory = directory / "state" if state is None else state
        self.address = address
        if make:
            make_private(directory)

    def open_log(
        self, *, create: bool = True, group: str = "grete", patience: Patience | None = None, reads: Reads = READS
    ) -> JobLog:
        """Open the log; lag tools see ``group``; ``patience``: with brokers that do not answer.

        ``reads``: how it will be read.
        Raises ConfigError if there is no file and ``create`` is False.
        """
        path = self.directory / "log.db"
        return open_address(self.address, path, group=group, create=create, patience=patience, reads=reads)

    def state(self, task: str) -> Path:
        """Return the directory of a task's store."""
        return self.state_directory / task

    def prebuilt(self, task: str) -> Path:
        """Return the directory in which a backfill leaves a task's state for its worker."""
        return self.directory / "prebuilt" / task

    def history(self) -> Path:
        """Return the file in which a backfill leaves how many records its history had."""
        return self.directory / "history.json"

    def snapshots(self) -> Path:
        """Return the directory in which snapshots are made, before they go to their folder."""
        return self.directory / "snapshots"

    def worker_log(self, partition: int) -> Path:
        """Return the file that a worker's log lines go to."""
        make_private(self.directory / "logs")
        return self.directory / "logs" / f"worker-{partition}.log"

    def standby_log(self, partition: int) -> Path:
        """Return the file that the log lines of a partition's standby go to."""
        make_private(self.directory / "logs")
        return self.directory / "logs" / f"standby-{partition}.log"

    @property
    def member_file(self) -> Path:
        """The file that keeps the id of the member that runs in this directory."""
        return self.directory / "member"

    def lock_supervisor(self) -> int:
        """Become the one supervisor here; the lock ends with the process. Raises ConfigError if there is another."""
        return self._lock("supervisor.lock", "already has a supervisor")

    def lock_redrive(self) -> int:
        """Become the one that sends dead letters again; the lock ends with the process. Raises ConfigError."""
        return self._lock("redrive.lock", "is where `grete dlq redrive` runs")

    def lock_source(self, topic: str) -> int:
        """Become the one that feeds a topic from a source; the lock ends with the process. Raises ConfigError."""
        return self._lock(f"source-{topic}.lock", f"is where another process feeds topic {topic!r}")

    def lock_snapshot(self, task: str) -> int:
        """Become the one that takes a snapshot of a task; the lock ends with the process. Raises ConfigError."""
        return self._lock(f"snapshot-{task}.lock", f"is where another process takes a snapshot of {task}")

    def _lock(self, name: str, said: str) -> int:
        path = self.directory / name
        try:
            handle = open_lock(path)
        except OSError as error:
            raise ConfigError(
                f"cannot open {path}: {error.strerror}: check its owner, or choose another --directory"
            ) from error
        try:
            try_lock(handle)
        except OSError as error:
            other = os.pread(handle, 32, 0).decode() or "unknown"
            os.close(handle)
            raise ConfigError(
                f"{self.directory} {said} (process {other}): stop it first, or choose another --directory"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        return handle


def directory_of(job: Job, directory: Path | None, address: LogAddress) -> Path:
    """Return the directory of a job: by default one for each log, so that two of them share no state."""
    if directory is not None:
        return directory
    return Path(".grete") / (job.name if address.embedded else f"{job.name}-{digest(address.url)}")


def digest(text: str | bytes) -> str:
    """Return a few characters derived from a text, for the name of a directory."""
    return hashlib.blake2b(os.fsencode(text), digest_size=4).hexdigest()
