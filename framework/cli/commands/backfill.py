"""`grete backfill`: a job's state built from its history on Spark."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from grete.api.job import Job
from grete.cli.job_target import JobTarget
from grete.cli.patient_output import standard_output
from grete.cli.progress import Screen, counted
from grete.cli.spark_work import of_stages, wanted_of
from grete.errors import ConfigError
from grete.job.directory import JobDirectory, directory_of
from grete.spark.backfill.backfill import Done, backfill
from grete.spark.backfill.history_checks import Accepted
from grete.spark.backfill.ranges import LOG, parse_until
from grete.spark.session import local_session
from grete.state.bulk_write import settle
from grete.state.prepare import prepare


def fill(
    found: JobTarget,
    sources: Sequence[str],
    until: str | None,
    accepted: Accepted,
    *,
    outputs: bool,
    cluster: str,
    work: str | None,
    outcome: str | None,
) -> None:
    """Backfill a job, or settle a backfill that has died. Raises ConfigError, TaskError, Fenced, Halted."""
    screen = Screen(Console(file=standard_output()))
    job, job_directory = found.job, found.job_directory
    if outcome is not None and (sources or until):
        raise ConfigError(f"--{outcome} settles a backfill that has died: give it alone")
    if outcome is None and not sources:
        raise ConfigError(
            f"--from is missing: a path of Parquet or JSON files, or {LOG} for the records that the log still holds"
        )
    wanted = wanted_of(found, sources or [LOG], work)._replace(outputs=outputs, accepted=accepted)
    log = job_directory.open_log()
    try:
        prepare(job, log, job_directory, found.settings)
        if outcome is not None:
            settled = settle(log, job, counts=outcome == "resume")
            screen.say("there is no backfill to settle" if settled is None else _settled(*settled))
            return
        begun_s, upto = time.monotonic(), parse_until(until, job)
        spark = local_session(cluster)
        with screen:
            done = backfill(spark, wanted, upto, log, screen)
        _tell(screen, found, done, time.monotonic() - begun_s, outputs=outputs)
    finally:
        log.close()


def _settled(bulk_write_id: str, counts: bool) -> str:
    return f"the backfill {bulk_write_id} {'counts' if counts else 'does not count'}: start the job"


def _tell(screen: Screen, found: JobTarget, done: Done, seconds: float, *, outputs: bool) -> None:
    job = found.job
    first = sum(report.records + report.refused for report in done.reports)
    keys = sum(report.keys for report in done.reports)
    screen.say(
        f"{job.name}: {counted(first, 'record')}{of_stages(job)}, {counted(keys, 'key')} in {seconds:.1f} s, "
        f"checkpoint {done.bulk_write.checkpoint_id}"
    )
    repeats = sum(report.repeats for report in done.reports)
    letters = sum(report.letters for report in done.reports)
    sent = sum(report.outputs for report in done.reports)
    if repeats:
        screen.say(f"{repeats:,} rows of offsets that were there already were left out")
    if outputs:
        screen.say(f"{sent:,} outputs to topics, {letters:,} of them dead letters, are written")
    elif letters:
        screen.say(f"records that went to no store, since a backfill writes no dead letters: {letters:,}")
    if failed := sum(report.failed for report in done.reports):
        screen.say(f'dropped, because processing failed (errors="drop"): {failed:,}')
    if sent - letters and not outputs:
        screen.say(f"{sent - letters:,} outputs to topics belong to the history, and are not written again")
    for partition, offset in sorted(done.cover.resume.items()):
        screen.say(f"  {partition}: goes on from offset {offset:,}")
    screen.say(f"Start it: {Path(sys.argv[0]).name} up {found.reference}{_options(found.job_directory, job)}")


def _options(job_directory: JobDirectory, job: Job) -> str:
    """Return the options that lead to the same log and directory again, where they are not the default."""
    address, directory = job_directory.address, job_directory.directory
    log = "" if address.embedded else f" --log {address.url}"
    return log if directory == directory_of(job, None, address) else f"{log} --directory {directory}"
