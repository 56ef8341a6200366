"""`grete check-determinism`: replays a deterministic job and compares its outputs."""

import random
from pathlib import Path

from grete.api.job import Job
from grete.cli.job_target import existing_log
from grete.cli.progress import counted
from grete.errors import ExitCode
from grete.job.directory import directory_of
from grete.logs.address import LogAddress
from grete.replay.elsewhere import ReplaySpec, replay_elsewhere
from grete.replay.replay import Found, replay
from grete.replay.report import is_same, report
from grete.settings import Settings
from grete.state.shown import printable


def check_determinism(
    reference: str, since: int, directory: Path | None, address: LogAddress, settings: Settings
) -> ExitCode:
    """Replay here and then elsewhere, compare, print; return FAILED if something differs."""
    with existing_log(reference, directory, address) as (job, log):
        found = replay(job, log, settings, since)
    print(f"{counted(found.records, 'input record')} replayed, {counted(found.compared, 'output')} compared")
    if is_same(found):
        found = _elsewhere(found, job, reference, directory, address, settings)
    if is_same(found):
        print("all of them are the same")
        return ExitCode.DONE
    for line in report(found, job):
        print(printable(line))
    return ExitCode.FAILED


def _elsewhere(
    found: Found, job: Job, reference: str, directory: Path | None, address: LogAddress, settings: Settings
) -> Found:
    """Replay once more, from a later checkpoint and in another process; return ``found`` if there is none."""
    if not found.restarts:
        print("no later commit has records behind it, so state outside of stores was not looked for")
        return found
    restart = random.choice(found.restarts)  # noqa: S311  # any will do, and another one the next time
    again = replay_elsewhere(
        ReplaySpec(
            job=reference,
            path=str(directory_of(job, directory, address) / "log.db"),
            log=address.url,
            kafka_config=None if address.config is None else str(address.config),
            settings=settings,
            since=restart,
        )
    )
    print(
        f"from checkpoint {restart}, in another process: {counted(again.records, 'input record')} replayed, "
        f"{counted(again.compared, 'output')} compared"
    )
    return again
