"""`grete fork`: a new job from the state of an existing one."""

from contextlib import closing
from pathlib import Path

from grete.cli.job_target import existing_log
from grete.cli.moved_state import at_checkpoint, mover_of, say, standing_still, tell_moved
from grete.errors import ConfigError
from grete.job.directory import JobDirectory, directory_of
from grete.job.loader import load_job
from grete.job.metadata import pinned_settings
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.state.fork import fork as fork_job
from grete.state.prepare import prepare
from grete.state.snapshots import id_of_all


def fork(
    reference: str,
    second: str,
    checkpoint_id: int | None,
    directory: Path | None,
    second_directory: Path | None,
    address: LogAddress,
    settings: Settings,
    *,
    assume_keyed: bool,
    cluster: str | None,
    work: str | None,
) -> None:
    """Give a new job, of another name, the state of a job at a checkpoint. Raises ConfigError."""
    with existing_log(reference, directory, address) as (job, log):
        settings, found = pinned_settings(job, log, settings), at_checkpoint(job, log, checkpoint_id)
        target = load_job(second)
        if target.name == job.name:
            raise ConfigError(f"both jobs are called {job.name!r}: give the new one another name")
        job_directory = JobDirectory(directory_of(target, second_directory, address), address=address)
        first, into = directory_of(job, directory, address), job_directory.directory
        with (
            standing_still(job_directory, target),
            closing(job_directory.open_log()) as target_log,
            mover_of(cluster, address, first, into, work) as mover,
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
                assume_keyed=assume_keyed,
                mover=mover,
            )
    tell_moved(moved, f"{target.name} has the state of {job.name} at checkpoint {id_of_all(found)}")
    say(f"It reads on from there: grete run {second}")
