"""`grete backfill`: a job's state built from its history on Spark."""

import contextlib
import sys
import tempfile
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
from grete.job.loader import load_job
from grete.job.metadata import pinned_settings
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
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Read the history and run the job's code, and write nothing: say what a backfill would take.",
        ),
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
        if history._replace(cluster=LOCAL, work=None, as_json=False) != HistoryOptions() or until or dry_run:
            raise ConfigError(f"--{'resume' if resume else 'abort'} settles a backfill that has died: give it alone")
        _settle(named.target(), counts=resume)
        return
    from grete.cli.spark_work import wanted_of
    from grete.spark.backfill.sources import LOG

    if not history.source:
        raise ConfigError(
            f"--from is missing: a path of Parquet or JSON files, or {LOG} for the records that the log still holds"
        )
    if dry_run:
        _try(named, history, until, outputs=outputs)
        return
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
    from grete.spark.backfill.backfill import backfill as backfill_job
    from grete.spark.backfill.ranges import parse_until
    from grete.spark.session import local_session

    screen = _screen(history)
    with contextlib.closing(found.job_directory.open_log()) as log:
        prepare(found.job, log, found.job_directory, found.settings)
        begun_s, upto = time.monotonic(), parse_until(until, found.job)
        spark = local_session(history.cluster)
        with screen:
            done = backfill_job(spark, wanted, upto, log, screen)
    _tell(screen, found.job, done, time.monotonic() - begun_s, outputs=wanted.outputs)
    screen.say(f"Start it: {Path(sys.argv[0]).name} up {found.reference}{_options(found.job_directory, found.job)}")
    _account(found.job, done, history)


def _try(named: NamedJob, history: HistoryOptions, until: str | None, *, outputs: bool) -> None:
    """Do all of a backfill but its writing. A job that has not run has a directory for the moment, on the embedded log.

    Raises ConfigError, TaskError, Halted.
    """
    from grete.cli.spark_work import wanted_of
    from grete.spark.backfill.backfill import dry_run
    from grete.spark.backfill.ranges import parse_until
    from grete.spark.session import local_session

    screen, begun_s = _screen(history), time.monotonic()
    with contextlib.ExitStack() as stack:
        job = load_job(named.reference)
        if named.address.embedded and not (directory_of(job, named.directory, named.address) / "log.db").exists():
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="grete-dry-run-"))
            named = named._replace(directory=Path(scratch))
            found = named.target()
            with contextlib.closing(found.job_directory.open_log()) as empty:
                prepare(found.job, empty, found.job_directory, found.settings)
        job, log = stack.enter_context(named.read())
        found = JobTarget(job, named.reference, named.place(job, make=False), pinned_settings(job, log, named.settings))
        upto, spark = parse_until(until, job), local_session(history.cluster)
        with screen:
            done = dry_run(spark, wanted_of(found, history, outputs=outputs), upto, log, screen)
    _tell(screen, job, done, time.monotonic() - begun_s, outputs=outputs)
    now = "the job has no state" if done.replaced is None else f"that of checkpoint {done.replaced}"
    screen.say(f"It was a dry run, and nothing is written. A backfill takes the place of the state of now: {now}")
    _account(job, done, history)


def _screen(history: HistoryOptions) -> Screen:
    return Screen(Console(file=standard_error() if history.as_json else standard_output()))


def _account(job: Job, done: "BackfillResult", history: HistoryOptions) -> None:
    """Print, and write as metrics, what was taken."""
    from grete.spark.backfill.account.account_metrics import write_metrics

    for each in (*done.account.files, *done.account.inputs) if history.as_json else ():
        print_json(each)
    if history.metrics is not None:
        keys = sum(report.keys for report in done.reports)
        write_metrics(history.metrics, job.name, done.account, keys, None)


def _settled(bulk_write_id: str, counts: bool) -> str:
    return f"the backfill {bulk_write_id} {'counts' if counts else 'does not count'}: start the job"


def _tell(screen: Screen, job: Job, done: "BackfillResult", seconds: float, *, outputs: bool) -> None:
    from grete.spark.backfill.account.shown_account import tables

    first = sum(report.records + report.refused for report in done.reports)
    keys = sum(report.keys for report in done.reports)
    screen.say(
        f"{job.name}: {counted(first, 'record')}{of_stages(job)}, {counted(keys, 'key')} in {seconds:.1f} s, "
        f"checkpoint {done.checkpoint_id}"
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


def _options(job_directory: JobDirectory, job: Job) -> str:
    """Return the options that lead to the same log and directory again, where they are not the default."""
    address, directory = job_directory.address, job_directory.directory
    log = "" if address.embedded else f" --log {address.url}"
    return log if directory == directory_of(job, None, address) else f"{log} --directory {directory}"
