"""Where a job lives on this machine: log, state, the workers' own logs; and how its code is found."""

import fcntl
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from framework.api.job import Job
from framework.errors import ConfigError
from framework.job.metadata import _GUARANTEE
from framework.job.topics import _check_external
from framework.logs.address import (
    IN_DIRECTORY,
    LogAddress,
    check_address,
    open_address,
)
from framework.ports import Log
from framework.settings import Settings
from framework.stores.store_directory import make_private

if TYPE_CHECKING:
    from framework.logs.address import NotesReader


class Place:
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

    def open_log(self, *, create: bool = True, group: str = "grete") -> Log:
        """Open the log; lag tools see ``group``. Raises ConfigError if there is no file and ``create`` is False."""
        return open_address(self.address, self.directory / "log.db", group=group, create=create)

    def state(self, task: str) -> Path:
        """Return the directory of a task's store."""
        return self.state_directory / task

    def prebuilt(self, task: str) -> Path:
        """Return the directory in which a backfill leaves a task's state for its worker."""
        return self.directory / "prebuilt" / task

    def worker_log(self, partition: int) -> Path:
        """Return the file that a worker's log lines go to."""
        make_private(self.directory / "logs")
        return self.directory / "logs" / f"worker-{partition}.log"

    def lock_supervisor(self) -> int:
        """Become the one supervisor here; the lock ends with the process. Raises ConfigError if there is another."""
        path = self.directory / "supervisor.lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"cannot open {path}: {error.strerror}: check its owner, or choose another --directory"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = os.pread(handle, 32, 0).decode() or "unknown"
            os.close(handle)
            raise ConfigError(
                f"{self.directory} already has a supervisor (process {other}): stop it first, "
                "or choose another --directory"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        return handle


def missing_topics(job: Job, log: Log, fed: Collection[str] | None = None) -> list[tuple[str, int, bool]]:
    """Return (topic, partitions, whether it is plain) of what ``create_topics`` would create; write nothing.

    Raises ConfigError if an external input that is not ``fed`` here is missing, or a topic does not fit: it has another
    number of partitions, or settings that would lose data.
    """
    topology = job.topology()
    wanted: list[tuple[str, int, bool]] = []
    for stage in topology.stages:
        for topic in topology.externals_of(stage.ordinal):
            if fed is not None:
                _check_external(job, topic, stage.partitions, log.partitions(topic), fed=topic in fed)
            wanted.append((topic, stage.partitions, True))
    wanted += [(topology.changelog(stage.ordinal), stage.partitions, False) for stage in topology.stages]
    wanted += [(stream.topic, stream.partitions, False) for stream in topology.streams]
    for topic in job.external_sinks():
        if fed is None or log.partitions(topic) is None:  # else it is somebody's, with as many partitions as they like
            wanted.append((topic, job.stages[0].pinned_counts.get(topic, job.partitions), True))
    missing = []
    for topic, partitions, plain in wanted:
        if log.partitions(topic) is None:
            missing.append((topic, partitions, plain))
        else:
            log.create_topic(topic, partitions, plain=plain)  # it is there, so this only looks whether it fits
    return missing


def check_guarantee(notes: "NotesReader", job: str, settings: Settings, modes: str) -> str | None:
    """Return guarantee and modes if they are to be pinned: at the first run, or when stages were added last.

    Raises ConfigError: the job has run with others.
    """
    if "deterministic" in modes and settings.guarantee != "exactly-once":
        raise ConfigError(
            f"job {job!r} has deterministic stages, which are exactly once: drop the setting guarantee = "
            f"{settings.guarantee}, or the mode"
        )
    described = modes
    if "deterministic" in modes and settings.release != "transaction":
        described = f"{modes}, {settings.release}"
    text = settings.guarantee if described == "aligned" else f"{settings.guarantee} ({described})"
    raw = notes.meta_get(_GUARANTEE)
    if raw is None:
        return text
    guarantee, before, release = _parsed(pinned := raw.decode())
    both = all("deterministic" in each for each in (before, modes))
    stages, ours = before.split(","), modes.split(",")
    same = all(one == other for one, other in zip(stages, ours, strict=False))
    if guarantee != settings.guarantee or not same or (both and release != settings.release):
        raise ConfigError(
            f"the log of job {job!r} was made with guarantee {pinned}, not {text}: put that back, or "
            "choose another --directory; on Kafka, another name for the job"
        )
    return text if len(ours) > len(stages) else None


def _parsed(pinned: str) -> tuple[str, str, str]:
    """Return guarantee, modes and release as they are pinned."""
    guarantee, _, rest = pinned.partition(" ")
    modes, _, release = rest.strip("()").partition(", ")
    return guarantee, modes or "aligned", release or "transaction"
