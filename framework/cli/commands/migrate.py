"""`grete migrate`: a job's keys and values in the newest version of the serdes."""

from pathlib import Path

from grete.api.versions import NEWEST, outputs_in_two_ways
from grete.cli.job_target import existing_log_to_write
from grete.cli.moved_state import say, standing_still, tell_moved
from grete.job.directory import JobDirectory, directory_of
from grete.job.metadata import pinned_settings
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.state.migrate import migrate as migrate_job
from grete.state.pinning import check_definition
from grete.worker.members_seen import refuse_members


def migrate(
    reference: str, directory: Path | None, address: LogAddress, settings: Settings, *, assume_keyed: bool
) -> None:
    """Bring a job to the newest version of the serdes. Raises ConfigError: it runs, or it cannot be brought there."""
    with existing_log_to_write(reference, directory, address) as (job, log):
        check_definition(job, log)
        if job.serdes == NEWEST:
            say(f"nothing to migrate: {job.name} has version {NEWEST} of the serdes, the newest")
            return
        job_directory = JobDirectory(directory_of(job, directory, address), address=address)
        settings = pinned_settings(job, log, settings)
        refuse_members(job, address, settings)
        with standing_still(job_directory, job):
            moved = migrate_job(log, job, settings, assume_keyed=assume_keyed)
    tell_moved(moved, f"{job.name} has version {NEWEST} of the serdes")
    outputs = [name for stage in job.live for name in outputs_in_two_ways(stage)]
    if outputs:
        say(f"From now on {', '.join(outputs)} are written by it: rows of before keep their keys there")
    say(f"Now start it: grete run {reference}")
