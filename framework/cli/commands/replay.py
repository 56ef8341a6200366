"""`grete replay`: the stores of a job, rebuilt from its changelogs."""

from pathlib import Path
from typing import Annotated

import typer

from grete.api.jobs.definition import define, encode_definition
from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.moved_state import at_checkpoint, say
from grete.cli.options import StateAt, path_named
from grete.job.metadata import pinned_settings
from grete.state.pins.pinning import copy_definition, output_counts
from grete.state.read.checkpoints.snapshots import id_of_all
from grete.state.write import rebuild

app = typer.Typer(add_completion=False)


@job_command(app, without="set")
def replay(
    named: NamedJob,
    *,
    at: StateAt = StateAt(),
    into: Annotated[
        Path | None,
        typer.Option(
            parser=path_named, metavar="PATH", help="Write the state into this directory instead of the job's own."
        ),
    ] = None,
) -> None:
    """Rebuild the local stores of a job from its changelogs."""
    with named.read() as (job, log):
        job_directory = named.place(job, into)
        settings = pinned_settings(job, log, named.settings)
        found = at_checkpoint(job, log, at.asked)
        total = 0
        copy_definition(encode_definition(define(job, output_counts(job, log))), job_directory.state_directory)
        for task, count in rebuild.replay(log, job, found, job_directory.state_directory, settings):
            print(f"{task}\t{count:,} entries applied")
            total += count
    say(f"{job_directory.state_directory}: {total:,} entries of checkpoint {id_of_all(found)}")
