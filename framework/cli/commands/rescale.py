"""`grete rescale`: a job's state over more partitions."""

from typing import Annotated

import typer

from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.moved_state import mover_of, say, standing_still, tell_moved
from grete.cli.options import MovingOptions
from grete.job.metadata import pinned_settings
from grete.state.pins.pinning import check_definition
from grete.state.write.rescale import partitions_of
from grete.state.write.rescale import rescale as rescale_job
from grete.worker.members.members_seen import refuse_members

app = typer.Typer(add_completion=False)


@job_command(app, without="set")
def rescale(
    named: NamedJob,
    *,
    partitions: Annotated[int, typer.Option(min=1, help="The new number of partitions, higher than the present one.")],
    stage: Annotated[
        str | None, typer.Option(help="Only this stage gets them: it has a number of its own then.")
    ] = None,
    moving: MovingOptions = MovingOptions(),
) -> None:
    """Give a stopped job more partitions. Its state moves to the partitions of its keys, as a whole or not at all.

    Stages with a number of partitions of their own keep it.
    """
    address = named.address
    with named.write() as (job, log):
        check_definition(job, log)
        job_directory = named.place(job)
        settings = pinned_settings(job, log, named.settings)
        own = job_directory.directory
        ended = refuse_members(job, address, settings)
        with (
            standing_still(job_directory, job.of(partitions_of(log, job, stage), stage)),
            mover_of(moving, address, own, own) as mover,
        ):
            moved = rescale_job(
                log,
                job,
                partitions,
                settings,
                own_topics=not address.on_kafka,
                assume_keyed=moving.assume_keyed,
                stage=stage,
                mover=mover,
                ended=ended,
            )
    done = f"{job.name} has {partitions} partitions" if stage is None else f"{stage} has {partitions} partitions"
    tell_moved(moved, done)
    code = f"Job({job.name!r}, …, partitions={partitions})"
    if stage is not None:
        code = job.stage(stage).declared_with(partitions, alone=True)
    say(f"Now write {code} in its code, and start it: {named.start(named.reference, named.directory)}")
