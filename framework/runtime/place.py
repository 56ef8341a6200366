"""Where a job lives on this machine: its log, the state of its tasks, its workers' logs; and how the job's code is found."""

import fcntl
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from framework.api.job import Job
from framework.errors import ConfigError
from framework.logs.embedded.log import EmbeddedLog
from framework.ports import Log
from framework.stores.directory import make_private


class Place:
    """The directory of one job. The embedded log is ``log.db`` in it; a task's state is below ``state``, a worker's log below ``logs``."""

    def __init__(self, directory: Path) -> None:
        """Make the directory, readable by this user only. Raises ConfigError if that cannot be."""
        self.directory = directory
        make_private(directory)

    def open_log(self, *, create: bool = True) -> EmbeddedLog:
        """Open the embedded log. Raises ConfigError if there is none and ``create`` is False."""
        return EmbeddedLog(self.directory / "log.db", create=create)

    def state(self, task: str) -> Path:
        """Return the directory of a task's store."""
        return self.directory / "state" / task

    def worker_log(self, partition: int) -> Path:
        """Return the file that a worker's log lines go to."""
        make_private(self.directory / "logs")
        return self.directory / "logs" / f"worker-{partition}.log"

    def lock_supervisor(self) -> int:
        """Become the one supervisor of this directory; the lock ends with the process. Raises ConfigError if there is another."""
        path = self.directory / "supervisor.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = os.pread(handle, 32, 0).decode() or "unknown"
            os.close(handle)
            raise ConfigError(
                f"{self.directory} already has a supervisor (process {other}): stop it first, or choose another --directory"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        return handle


def create_topics(job: Job, log: Log) -> None:
    """Create every topic of the job that is missing (K1). Raises ConfigError if one has another number of partitions."""
    topology = job.topology()
    for stage in topology.stages:
        log.create_topic(topology.changelog(stage.ordinal), stage.partitions)
        for topic in topology.externals_of(stage.ordinal):
            log.create_topic(topic, stage.partitions)
    for stream in topology.streams:
        log.create_topic(stream.topic, stream.partitions)
    for topic in job.external_sinks():
        log.create_topic(topic, job.partitions)


def load_job(reference: str) -> Job:
    """Return the ``job`` of a module (``tasks.word_count``) or file (``word_count.py``). Raises ConfigError saying what is missing."""
    module = _load_file(Path(reference)) if reference.endswith(".py") else _load_module(reference)
    job = getattr(module, "job", None)
    if not isinstance(job, Job):
        found = "nothing" if job is None else f"a {type(job).__name__}"
        raise ConfigError(f"{reference} must define job = Job(...); its name 'job' is bound to {found}")
    return job


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"no file {path}: give the path of a Python file that defines job = Job(...)")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be loaded as Python")
    sys.path.insert(0, str(path.parent.resolve()))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(
                f"no module {name!r}: give a module such as tasks.word_count, or the path of a file"
            ) from error
        raise
