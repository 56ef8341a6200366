"""`grete replay`: the stores of a job, rebuilt from its changelogs."""

from pathlib import Path

from grete.api.definition import define, encode_definition
from grete.cli.job_target import existing_log
from grete.cli.moved_state import at_checkpoint, say
from grete.job.directory import JobDirectory, directory_of
from grete.job.metadata import pinned_settings
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.state import rebuild
from grete.state.pinning import copy_definition, output_counts
from grete.state.snapshots import id_of_all


def replay(
    reference: str,
    checkpoint_id: int | None,
    into: Path | None,
    directory: Path | None,
    address: LogAddress,
    settings: Settings,
) -> None:
    """Rebuild the stores of a job from its changelogs. Raises ConfigError, TransientError: a worker has one open."""
    with existing_log(reference, directory, address) as (job, log):
        job_directory = JobDirectory(directory_of(job, directory, address), into, address)
        settings = pinned_settings(job, log, settings)
        found = at_checkpoint(job, log, checkpoint_id)
        total = 0
        copy_definition(encode_definition(define(job, output_counts(job, log))), job_directory.state_directory)
        for task, count in rebuild.replay(log, job, found, job_directory.state_directory, settings):
            print(f"{task}\t{count:,} entries applied")
            total += count
    say(f"{job_directory.state_directory}: {total:,} entries of checkpoint {id_of_all(found)}")
