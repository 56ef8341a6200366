"""`grete replay`: the stores of a job, rebuilt from its changelogs."""

from pathlib import Path

from framework.api.definition import define, encode_definition
from framework.cli.job_target import directory_of, existing_log
from framework.cli.moved_state import at_version, say, settings_at, version_of
from framework.job.directory import Place
from framework.logs.address import LogAddress
from framework.state import rebuild
from framework.state.pinning import copy_definition, output_counts


def replay(reference: str, version: int | None, into: Path | None, directory: Path | None, address: LogAddress) -> None:
    """Rebuild the stores of a job from its changelogs. Raises ConfigError, TransientError: a worker has one open."""
    job, log = existing_log(reference, directory, address)
    place = Place(directory_of(job, directory, address), into, address)
    found = at_version(job, log, version)
    total = 0
    copy_definition(encode_definition(define(job, output_counts(job, log))), place.state_directory)
    for task, count in rebuild.replay(log, job, found, place.state_directory, settings_at(job, log)):
        print(f"{task}\t{count:,} entries applied")
        total += count
    log.close()
    say(f"{place.state_directory}: {total:,} entries of version {version_of(found)}")
