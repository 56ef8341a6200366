"""`grete fork`: a new job from the state of an existing one."""

from pathlib import Path

from framework.cli.job_target import directory_of, existing_log
from framework.cli.moved_state import at_version, say, settings_at, standing_still, tell_moved, version_of
from framework.errors import ConfigError
from framework.job.directory import Place
from framework.job.loader import load_job
from framework.logs.address import LogAddress
from framework.state.fork import fork as fork_job
from framework.state.prepare import prepare


def fork(
    reference: str,
    second: str,
    version: int | None,
    directory: Path | None,
    second_directory: Path | None,
    address: LogAddress,
    *,
    by_key: bool,
) -> None:
    """Give a second job, of another name, the state of a job at a version. Raises ConfigError."""
    job, log = existing_log(reference, directory, address)
    settings, found = settings_at(job, log), at_version(job, log, version)
    target = load_job(second)
    if target.name == job.name:
        raise ConfigError(f"both jobs are called {job.name!r}: give the second one a name of its own")
    place = Place(directory_of(target, second_directory, address), address=address)
    with standing_still(place, target):
        target_log = place.open_log()
        prepare(target, target_log, place, settings, state_of=job)
        moved = fork_job(log, job, found, target_log, target, settings, copy=address.embedded, by_key=by_key)
        target_log.close()
    log.close()
    tell_moved(moved, f"{target.name} has the state of {job.name} at version {version_of(found)}")
    say(f"It reads on from there: grete run {second}")
