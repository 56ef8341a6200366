"""`grete fork`: a new job from the state of an existing one."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.moved_state import at_checkpoint, mover_of, say, standing_still, tell_moved
from grete.cli.options import MovingOptions, StateAt, path_named
from grete.errors import ConfigError
from grete.job.directory import JobDirectory, directory_of
from grete.job.loader import load_job
from grete.job.metadata import pinned_settings
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.snapshots import id_of_all
from grete.state.write.fork import fork as fork_job

app = typer.Typer(add_completion=False)


@job_command(app, without="set")
def fork(
    named: NamedJob,
    second: Annotated[
        str,
        typer.Argument(
            metavar="SECOND",
            help="The new job, a module or a file: another name, the same stages in order, new ones only at the end.",
        ),
    ],
    *,
    at: StateAt = StateAt(),
    second_directory: Annotated[
        Path | None,
        typer.Option(
            parser=path_named, metavar="PATH", help="The directory of the new job. Default: as for --directory."
        ),
    ] = None,
    moving: MovingOptions = MovingOptions(),
) -> None:
    """Give a new job the state of an existing one at a checkpoint.

    It starts from there. It may have another number of partitions.
    """
    address = named.address
    with named.read() as (job, log):
        settings, found = pinned_settings(job, log, named.settings), at_checkpoint(job, log, at.asked)
        target = load_job(second)
        if target.name == job.name:
            raise ConfigError(f"both jobs are called {job.name!r}: give the new one another name")
        job_directory = JobDirectory(directory_of(target, second_directory, address), address=address)
        first, into = directory_of(job, named.directory, address), job_directory.directory
        with (
            standing_still(job_directory, target),
            closing(job_directory.open_log()) as target_log,
            mover_of(moving, address, first, into) as mover,
        ):
            prepare(target, target_log, job_directory, settings, state_of=job)
            moved = fork_job(
                log,
                job,
                found,
                target_log,
                target,
                settings,
                copy=address.embedded,
                assume_keyed=moving.assume_keyed,
                mover=mover,
            )
    tell_moved(moved, f"{target.name} has the state of {job.name} at checkpoint {id_of_all(found)}")
    say(f"It reads on from there: {named.start(second, second_directory)}")
