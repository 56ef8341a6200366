"""`grete rescale`: a job's state over more partitions."""

from pathlib import Path

from grete.cli.job_target import existing_log_to_write
from grete.cli.moved_state import mover_of, say, standing_still, tell_moved
from grete.job.directory import JobDirectory, directory_of
from grete.job.metadata import pinned_settings
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.state.pinning import check_definition
from grete.state.rescale import partitions_of
from grete.state.rescale import rescale as rescale_job
from grete.worker.members_seen import refuse_members


def rescale(
    reference: str,
    partitions: int,
    directory: Path | None,
    address: LogAddress,
    settings: Settings,
    *,
    assume_keyed: bool,
    stage: str | None,
    cluster: str | None,
    work: str | None,
) -> None:
    """Give a job, or one stage of it, more partitions. Raises ConfigError: it runs, or it cannot be rescaled."""
    with existing_log_to_write(reference, directory, address) as (job, log):
        check_definition(job, log)
        job_directory = JobDirectory(directory_of(job, directory, address), address=address)
        settings = pinned_settings(job, log, settings)
        own = job_directory.directory
        refuse_members(job, address, settings)
        with (
            standing_still(job_directory, job.of(partitions_of(log, job, stage), stage)),
            mover_of(cluster, address, own, own, work) as mover,
        ):
            moved = rescale_job(
                log,
                job,
                partitions,
                settings,
                embedded=address.embedded,
                assume_keyed=assume_keyed,
                stage=stage,
                mover=mover,
            )
    done = f"{job.name} has {partitions} partitions" if stage is None else f"{stage} has {partitions} partitions"
    tell_moved(moved, done)
    code = f"Job({job.name!r}, …, partitions={partitions})"
    if stage is not None:
        code = job.stage(stage).declared_with(partitions, alone=True)
    say(f"Now write {code} in its code, and start it: grete run {reference}")
