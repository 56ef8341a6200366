"""`grete doctor`: whether a job can run here, and what to do if not. It writes nothing."""

from collections import deque
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from grete.cli.doctor import embedded, machine
from grete.cli.doctor.report import Report
from grete.cli.doctor.stored import look_at_changelogs, look_at_snapshots
from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.options import AsJson
from grete.cli.output.reading import print_json
from grete.cli.output.tables import print_table
from grete.errors import ConfigError, ExitCode, FrameworkError
from grete.job.loader import load_job
from grete.logs.address import check_address, read_options
from grete.state.read.shown import printable

app = typer.Typer(add_completion=False)


@job_command(app)
def doctor(
    named: NamedJob,
    *,
    processes: Annotated[int | None, typer.Option(help="The same number as for grete run or grete up.", min=1)] = None,
    json: AsJson = False,
) -> ExitCode:
    """Check whether this machine can run the job: log, rights, topics, clocks, disk, limits; exit 1 if not.

    It writes nothing.
    """
    address, settings = named.address, named.settings
    hosts, job, report = check_address(address), load_job(named.reference), Report()
    place = named.place(job, make=False).directory
    machine.look(report, job, place, settings, processes or job.workers)
    if settings.snapshot_url:
        look_at_snapshots(report, job, settings.snapshot_url)
    if address.embedded:
        embedded.look(report, job, place)
    elif not address.on_kafka:
        _look_at_own_log(report, named)
    else:
        from grete.cli.doctor.kafka import Doctor

        try:
            Doctor(report, job, hosts, {} if address.config is None else read_options(address.config)).look()
        except FrameworkError as error:
            report.failed("brokers", hosts, error)
    if json:
        for finding in report.findings:
            print_json(msgspec.to_builtins(finding))
    else:
        _print(report)
    wrong = any(finding.level == "error" for finding in report.findings)
    return ExitCode.FAILED if wrong else ExitCode.DONE


def _look_at_own_log(report: Report, named: NamedJob) -> None:
    """Look whether a log that is neither of ours answers, and at the last commits there. Its place may be secret."""
    try:
        with named.compare() as (job, log):
            report.ok("log", type(log).__name__, f"it answers, and has {len(log.topics())} topics")
            deque(look_at_changelogs(report, job, log), maxlen=0)
    except ConfigError as error:  # as of a log that is not there yet
        report.warn("log", named.reference, str(error), "if the job has not run yet, start it: it makes its log")
    except FrameworkError as error:
        report.failed("log", named.reference, error)


def _print(report: Report) -> None:
    table = Table("level", "what", "where", "value", box=None)
    for finding in report.findings:
        table.add_row(finding.level, finding.what, finding.where, finding.value)
    print_table(Console(), table)
    for finding in report.findings:
        if finding.remedy:
            print(printable(f"{finding.level}: {finding.what} of {finding.where}: {finding.remedy}"))
    levels = [finding.level for finding in report.findings]
    print(f"{levels.count('error')} errors, {levels.count('warning')} warnings, {levels.count('ok')} in order")
