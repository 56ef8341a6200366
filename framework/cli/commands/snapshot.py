"""`grete snapshot`: the state of each task as files, for workers on other machines."""

import os
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.options import AsJson, path_named
from grete.cli.output.reading import print_json
from grete.clock_text import MINUTES, clock_text
from grete.errors import ConfigError
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.snapshot_upload import SnapshotUpload, TakenSnapshot
from grete.stores.snapshot_folder import SnapshotFolder

app = typer.Typer(add_completion=False)


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


@job_command(app)
def snapshot(
    named: NamedJob,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The folder of the snapshots: a path, or a url of fsspec such as s3://BUCKET/PATH. "
            "Default: the setting snapshot_url.",
        ),
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="Keep this many snapshots of each task, and delete older ones.")] = 3,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only the tasks of this partition; may be repeated. Default: all.")
    ] = None,
    json: AsJson = False,
    state_directory: Annotated[
        Path | None,
        typer.Option(parser=path_named, metavar="PATH", help="The workers' --state-directory, if they have one."),
    ] = None,
) -> None:
    """Write the state of each task, as files, into a shared folder or an object store, while the job runs.

    A worker on a new machine with the setting snapshot_url takes these, and only the rest from its changelog.
    """
    settings, partitions = named.settings, partition or ()
    url = to or settings.snapshot_url
    if not url:
        raise ConfigError("no folder for snapshots: give --to URL, or the setting snapshot_url", setting="snapshot_url")
    with named.read() as (job, log):
        if unknown := [number for number in partitions if not 0 <= number < job.workers]:
            raise ConfigError(f"--partition {unknown[0]}: job {job.name!r} has partitions 0 to {job.workers - 1}")
        job_directory = named.place(job, state_directory)
        folder = SnapshotFolder(url, job.name)
        upload = SnapshotUpload(log, job.name, folder, job_directory.snapshots(), settings.rocksdb_bytes)
        for (graph, number), wiring in zip(job.tasks(), all_wirings(job), strict=True):
            if partitions and number not in partitions:
                continue
            began = time.monotonic()
            lock = job_directory.lock_snapshot(wiring.name)
            try:
                taken = upload.take(graph, wiring, job_directory.state(wiring.name))
                deleted = folder.prune(wiring.name, keep)
            finally:
                os.close(lock)
            found = _row(wiring.name, taken, settings, deleted, time.monotonic() - began)
            print_json(found) if json else print(found)


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
