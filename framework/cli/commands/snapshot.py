"""`grete snapshot`: the state of each task as files, for workers on other machines."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from grete.cli.job_target import existing_log
from grete.cli.reading import print_json
from grete.clock_text import MINUTES, clock_text
from grete.errors import ConfigError
from grete.job.directory import JobDirectory, directory_of
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.state.commits import all_wirings
from grete.state.snapshot_upload import SnapshotUpload, TakenSnapshot
from grete.stores.snapshot_folder import SnapshotFolder


class NoSnapshot(msgspec.Struct, frozen=True):
    """A task that has committed nothing yet."""

    task: str
    checkpoint_id: None = None

    def __str__(self) -> str:
        return f"{self.task}\tnothing committed yet"


class SnapshotRow(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot. ``of_use_until_ms``: when its commit may be trimmed at the earliest."""

    task: str
    checkpoint_id: int
    offset: int
    source: str
    of_use_until_ms: int
    uploaded: dict[str, int] | None
    deleted_files: int
    seconds: float

    def __str__(self) -> str:
        until = clock_text(self.of_use_until_ms, MINUTES)
        mib = {} if self.uploaded is None else {name: size / (1 << 20) for name, size in self.uploaded.items()}
        written = (
            f"from its {self.source}: {mib['new_bytes']:,.1f} of {mib['size_bytes']:,.1f} MiB written in "
            f"{self.seconds:,.1f} s"
            if mib
            else "there already"
        )
        return (
            f"{self.task}\tcheckpoint {self.checkpoint_id}\t{written}\t"
            f"of use until {until} (changelog_retention_ms), or longer"
        )


def snapshot(
    reference: str,
    to: str | None,
    keep: int,
    partitions: Sequence[int],
    places: tuple[Path | None, Path | None],
    address: LogAddress,
    settings: Settings,
    *,
    as_json: bool,
) -> None:
    """Take a snapshot of each task, or of those of some partitions, and print a line for each; delete old ones.

    ``places``: directories of the job and of its stores, None: the usual ones.
    Raises ConfigError; TransientError: the folder is away, or the disk is full.
    """
    url = to or settings.snapshot_url
    if not url:
        raise ConfigError("no folder for snapshots: give --to URL, or the setting snapshot_url", setting="snapshot_url")
    directory, state = places
    with existing_log(reference, directory, address) as (job, log):
        if unknown := [partition for partition in partitions if not 0 <= partition < job.workers]:
            raise ConfigError(f"--partition {unknown[0]}: job {job.name!r} has partitions 0 to {job.workers - 1}")
        job_directory = JobDirectory(directory_of(job, directory, address), state, address)
        folder = SnapshotFolder(url, job.name)
        upload = SnapshotUpload(log, job.name, folder, job_directory.snapshots(), settings.rocksdb_bytes)
        for (graph, partition), wiring in zip(job.tasks(), all_wirings(job), strict=True):
            if partitions and partition not in partitions:
                continue
            began = time.monotonic()
            lock = job_directory.lock_snapshot(wiring.name)
            try:
                taken = upload.take(graph, wiring, job_directory.state(wiring.name))
                deleted = folder.prune(wiring.name, keep)
            finally:
                os.close(lock)
            found = _row(wiring.name, taken, settings, deleted, time.monotonic() - began)
            print_json(found) if as_json else print(found)


def _row(
    task: str, taken: TakenSnapshot | None, settings: Settings, deleted: int, seconds: float
) -> SnapshotRow | NoSnapshot:
    if taken is None:
        return NoSnapshot(task)
    at, source, uploaded = taken
    return SnapshotRow(
        task=task,
        checkpoint_id=at.commit.checkpoint_id,
        offset=at.offset,
        source=source,
        of_use_until_ms=at.append_time_ms + settings.changelog_retention_ms,
        uploaded=None if uploaded is None else uploaded._asdict(),
        deleted_files=deleted,
        seconds=round(seconds, 3),
    )
