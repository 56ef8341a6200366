"""`grete backfill`: a job's state built from its history on Spark."""

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from grete.api.jobs.job import Job
from grete.cli.job_command import job_command
from grete.cli.job_target import JobTarget, NamedJob
from grete.cli.options import LOCAL, HistoryOptions
from grete.cli.output.patient_output import standard_error, standard_output
from grete.cli.output.progress import Screen, counted, of_stages
from grete.cli.output.reading import print_json
from grete.cli.output.tables import print_table
from grete.errors import ConfigError
from grete.job.directory import JobDirectory, directory_of
from grete.spark import require_extra
from grete.state.pins.prepare import prepare
from grete.state.write.bulk.bulk_write import settle

if TYPE_CHECKING:
    from grete.spark.backfill.backfill import BackfillResult, BackfillSpec

app = typer.Typer(add_completion=False)


@job_command(app)
def backfill(
    named: NamedJob,
    *,
    history: HistoryOptions = HistoryOptions(),
    until: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSETS|now",
            help="The offsets from which the job continues live: [TOPIC:]PARTITION=OFFSET,…, or 'now' for the end of "
            "the log. Default: those of its last commit, or the end of the history.",
        ),
    ] = None,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Also write the outputs of the history to topics, files and tables.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Complete a backfill that died after it had committed all tasks.")
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Roll back a backfill that died: nothing of it counts.")
    ] = False,
) -> None:
    """Build a job's state from its history, by its own code, on Spark. Then the job continues live."""
    if resume and abort:
        raise ConfigError("--resume and --abort: choose one")
    require_extra()
    if resume or abort:
        if history._replace(cluster=LOCAL, work=None, as_json=False) != HistoryOptions() or until:
            raise ConfigError(f"--{'resume' if resume else 'abort'} settles a backfill that has died: give it alone")
        _settle(named.target(), counts=resume)
        return
    from grete.cli.spark_work import wanted_of
    from grete.spark.backfill.sources import LOG

    if not history.source:
        raise ConfigError(
            f"--from is missing: a path of Parquet or JSON files, or {LOG} for the records that the log still holds"
        )
    found = named.target()
    _fill(found, wanted_of(found, history, outputs=outputs), until, history)


def _settle(found: JobTarget, *, counts: bool) -> None:
    """Complete a backfill that has died, or roll it back."""
    screen = Screen(Console(file=standard_output()))
    with contextlib.closing(found.job_directory.open_log()) as log:
        prepare(found.job, log, found.job_directory, found.settings)
        settled = settle(log, found.job, counts=counts)
    screen.say("there is no backfill to settle" if settled is None else _settled(*settled))


def _fill(found: JobTarget, wanted: "BackfillSpec", until: str | None, history: HistoryOptions) -> None:
    """Backfill a job. Raises ConfigError, TaskError, Fenced, Halted."""
    from grete.spark.backfill.account.account_metrics import write_metrics
    from grete.spark.backfill.backfill import backfill as backfill_job
    from grete.spark.backfill.ranges import parse_until
    from grete.spark.session import local_session

    screen = Screen(Console(file=standard_error() if history.as_json else standard_output()))
    with contextlib.closing(found.job_directory.open_log()) as log:
        prepare(found.job, log, found.job_directory, found.settings)
        begun_s, upto = time.monotonic(), parse_until(until, found.job)
        spark = local_session(history.cluster)
        with screen:
            done = backfill_job(spark, wanted, upto, log, screen)
        _tell(screen, found, done, time.monotonic() - begun_s, outputs=wanted.outputs)
    for each in (*done.account.files, *done.account.inputs) if history.as_json else ():
        print_json(each)
    if history.metrics is not None:
        keys = sum(report.keys for report in done.reports)
        write_metrics(history.metrics, found.job.name, done.account, keys, None)


def _settled(bulk_write_id: str, counts: bool) -> str:
    return f"the backfill {bulk_write_id} {'counts' if counts else 'does not count'}: start the job"


def _tell(screen: Screen, found: JobTarget, done: "BackfillResult", seconds: float, *, outputs: bool) -> None:
    from grete.spark.backfill.account.shown_account import tables

    job = found.job
    first = sum(report.records + report.refused for report in done.reports)
    keys = sum(report.keys for report in done.reports)
    screen.say(
        f"{job.name}: {counted(first, 'record')}{of_stages(job)}, {counted(keys, 'key')} in {seconds:.1f} s, "
        f"checkpoint {done.bulk_write.checkpoint_id}"
    )
    repeats = sum(each.twice for each in done.account.inputs)
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
    for table in tables(done.account):
        print_table(screen.console, table)
    for partition, offset in sorted(done.cover.resume.items()):
        screen.say(f"  {partition}: goes on from offset {offset:,}")
    screen.say(f"Start it: {Path(sys.argv[0]).name} up {found.reference}{_options(found.job_directory, job)}")


def _options(job_directory: JobDirectory, job: Job) -> str:
    """Return the options that lead to the same log and directory again, where they are not the default."""
    address, directory = job_directory.address, job_directory.directory
    log = "" if address.embedded else f" --log {address.url}"
    return log if directory == directory_of(job, None, address) else f"{log} --directory {directory}"
