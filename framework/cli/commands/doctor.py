"""`grete doctor`: whether a job can run here, and what to do if not. It writes nothing."""

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from grete.cli.doctor import embedded, machine, snapshots
from grete.cli.doctor.report import Report
from grete.cli.reading import print_json
from grete.cli.tables import print_table
from grete.errors import FrameworkError
from grete.job.directory import directory_of
from grete.job.loader import load_job
from grete.logs.address import LogAddress, check_address, read_options
from grete.settings import Settings
from grete.state.shown import printable


def doctor(
    reference: str,
    directory: Path | None,
    address: LogAddress,
    settings: Settings,
    *,
    processes: int | None = None,
    as_json: bool = False,
) -> bool:
    """Print a table of the findings, or a line of JSON for each; return whether none is an error.

    ``processes``: worker processes that share all partitions; None: one for each.
    Raises ConfigError: the job's code, a setting or the address is wrong.
    """
    hosts, job, report = check_address(address), load_job(reference), Report()
    place = directory_of(job, directory, address)
    machine.look(report, job, place, settings, processes or job.workers)
    if settings.snapshot_url:
        snapshots.look(report, job, settings.snapshot_url)
    if not hosts:
        embedded.look(report, job, place)
    else:
        from grete.cli.doctor.kafka import Doctor

        try:
            Doctor(report, job, hosts, {} if address.config is None else read_options(address.config)).look()
        except FrameworkError as error:
            report.failed("brokers", hosts, error)
    if as_json:
        for finding in report.findings:
            print_json(msgspec.to_builtins(finding))
    else:
        _print(report)
    return all(finding.level != "error" for finding in report.findings)


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
