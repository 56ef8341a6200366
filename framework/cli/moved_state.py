"""Shared by the commands that move the state of a whole job."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from grete.api.jobs.job import Job
from grete.cli.options import MovingOptions
from grete.cli.output.progress import Screen
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, TransientError
from grete.job.directory import JobDirectory
from grete.job.metadata import pinned_settings
from grete.logs.address import LogAddress
from grete.ports import JobLogReader
from grete.settings import Settings
from grete.spark import require_extra
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.nearest import AsOf
from grete.state.read.checkpoints.snapshots import Snapshot, snapshots
from grete.state.read.shown import printable
from grete.state.write.moving.entries import MovedEntries
from grete.state.write.moving.mover import Mover
from grete.stores.store_directory import StoreDirectory


def at_checkpoint(job: Job, log: JobLogReader, asked: AsOf | None) -> list[Snapshot]:
    """Return every task at a checkpoint, None: the newest that all have. Raises ConfigError: there is none."""
    return snapshots(log, job, asked, aligned=pinned_settings(job, log, Settings()).aligned)


@contextlib.contextmanager
def standing_still(job_directory: JobDirectory, job: Job, tasks: Sequence[TaskWiring] | None = None) -> Iterator[None]:
    """Hold the locks of a supervisor and workers on this machine; of all ``tasks``, None: those of the job's code.

    Raises ConfigError if one of them runs.
    """
    with contextlib.ExitStack() as held:
        held.callback(os.close, job_directory.lock_supervisor())
        for wiring in all_wirings(job) if tasks is None else tasks:
            try:
                store = StoreDirectory(job_directory.state(wiring.name))
            except TransientError as error:
                raise ConfigError(f"a worker of job {job.name!r} is at work: stop it first: {error}") from error
            held.callback(store.close)
        yield


@contextlib.contextmanager
def mover_of(moving: MovingOptions, address: LogAddress, directory: Path, into: Path) -> Iterator[Mover | None]:
    """Yield the mover of the state between the jobs of two directories; None: this process moves it.

    Raises ConfigError: Spark is not installed.
    """
    if moving.cluster is None:
        if moving.work is not None:
            raise ConfigError(f"--work={moving.work} is for Spark: add --spark, or leave it out")
        yield None
        return
    require_extra()
    from grete.cli.spark_work import spark_mover

    screen = Screen(Console(stderr=True))
    with screen, spark_mover(moving.cluster, address, directory, into, moving.work, screen) as mover:
        yield mover


def tell_moved(moved: MovedEntries, done: str) -> None:
    """Print how many entries each store has got, and a closing line."""
    for name, count in sorted(moved.entries.items()):
        print(f"{name}\t{count:,} entries")
    say(f"{done}, as checkpoint {moved.checkpoint_id}")


def say(text: str) -> None:
    """Print a line on standard error: it is no result."""
    Console(stderr=True).print(printable(text), highlight=False, markup=False, soft_wrap=True)
