"""`grete rescale`, `fork` and `replay`: what a job's changelogs are good for beside a restart."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from framework.api.definition import define, encode_definition
from framework.api.job import Job
from framework.cli.target import directory_of, existing_log, existing_log_to_write, settings_of
from framework.errors import ConfigError, TransientError
from framework.logs.open import LogAddress
from framework.ports import LogReader
from framework.runtime import moving, rebuilding
from framework.runtime.history import Snapshot, snapshots
from framework.runtime.inspect import all_wirings
from framework.runtime.pinning import check_definition, copy_definition, output_counts
from framework.runtime.place import Place, load_job, pinned_settings, prepare
from framework.settings import Settings
from framework.stores.directory import StoreDirectory


def rescale(reference: str, partitions: int, directory: Path | None, address: LogAddress, *, by_key: bool) -> None:
    """Give a job more partitions. Raises ConfigError: it runs, or it cannot be rescaled."""
    job, log = existing_log_to_write(reference, directory, address)
    check_definition(job, log)
    place = Place(directory_of(job, directory, address), address=address)
    settings = settings_at(job, log)
    with standing_still(place, job.of(moving.partitions_of(log, job))):
        moved = moving.rescale(log, job, partitions, settings, embedded=address.embedded, by_key=by_key)
    log.close()
    _tell(moved, f"{job.name} has {partitions} partitions")
    say(f"Now write Job({job.name!r}, …, partitions={partitions}), and start it: grete run {reference}")


def fork(
    reference: str,
    second: str,
    version: int | None,
    directory: Path | None,
    second_directory: Path | None,
    address: LogAddress,
    *,
    by_key: bool,
) -> None:
    """Give a second job, of another name, the state of a job at a version. Raises ConfigError."""
    job, log = existing_log(reference, directory, address)
    settings, found = settings_at(job, log), at_version(job, log, version)
    target = load_job(second)
    if target.name == job.name:
        raise ConfigError(f"both jobs are called {job.name!r}: give the second one a name of its own")
    place = Place(directory_of(target, second_directory, address), address=address)
    with standing_still(place, target):
        target_log = place.open_log()
        prepare(target, target_log, place, settings, state_of=job)
        moved = moving.fork(log, job, found, target_log, target, settings, copy=address.embedded, by_key=by_key)
        target_log.close()
    log.close()
    _tell(moved, f"{target.name} has the state of {job.name} at version {_version_of(found)}")
    say(f"It reads on from there: grete run {second}")


def replay(reference: str, version: int | None, into: Path | None, directory: Path | None, address: LogAddress) -> None:
    """Rebuild the stores of a job from its changelogs. Raises ConfigError, TransientError: a worker has one open."""
    job, log = existing_log(reference, directory, address)
    place = Place(directory_of(job, directory, address), into, address)
    found = at_version(job, log, version)
    total = 0
    copy_definition(encode_definition(define(job, output_counts(job, log))), place.state_directory)
    for task, count in rebuilding.replay(log, job, found, place.state_directory, settings_at(job, log)):
        print(f"{task}\t{count:,} entries applied")
        total += count
    log.close()
    say(f"{place.state_directory}: {total:,} entries of version {_version_of(found)}")


def settings_at(job: Job, log: LogReader) -> Settings:
    """Return the settings of the environment, with the guarantee that the job was made with."""
    return pinned_settings(job, log, settings_of(None))


def at_version(job: Job, log: LogReader, version: int | None) -> list[Snapshot]:
    """Return every task at a version, None: the newest that all have. Raises ConfigError: there is none such."""
    return snapshots(log, job, version, aligned=settings_at(job, log).guarantee == "exactly-once")


@contextlib.contextmanager
def standing_still(place: Place, job: Job) -> Iterator[None]:
    """Hold what a supervisor and workers on this machine would hold. Raises ConfigError if one of them is there."""
    with contextlib.ExitStack() as held:
        held.callback(os.close, place.lock_supervisor())
        for wiring in all_wirings(job):
            try:
                store = StoreDirectory(place.state(wiring.name))
            except TransientError as error:
                raise ConfigError(f"a worker of job {job.name!r} is at work: stop it first: {error}") from error
            held.callback(store.close)
        yield


def _version_of(found: list[Snapshot]) -> int:
    return min(snapshot.commit.version for snapshot in found)


def _tell(moved: moving.Moved, done: str) -> None:
    for name, count in sorted(moved.entries.items()):
        print(f"{name}\t{count:,} entries")
    say(f"{done}, as version {moved.version}")


def say(text: str) -> None:
    """Print a line on standard error: what is no result."""
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)
