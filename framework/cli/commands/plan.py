"""`grete plan`: what a start with the code, or `grete apply`, would do to a job."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grete.cli.job_target import log_to_compare
from grete.cli.moved_state import say
from grete.cli.reading import print_json
from grete.cli.tables import print_table
from grete.errors import ExitCode
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.state.plan import By, Planned, plan_of
from grete.state.shown import printable


def plan(
    reference: str, directory: Path | None, address: LogAddress, settings: Settings, *, as_json: bool = False
) -> ExitCode:
    """Print the plan; return 0 if a start makes all changes, 1 if some are to be applied, 2 if some are refused."""
    with log_to_compare(reference, directory, address) as (job, log):
        rows = plan_of(job, log, settings)
    if as_json:
        for row in rows:
            print_json(row._asdict())
    else:
        show(rows)
        say(_summary(rows, reference))
    by = {row.by for row in rows}
    return ExitCode.USAGE if By.REFUSED in by else ExitCode.FAILED if By.APPLY in by else ExitCode.DONE


def show(rows: Sequence[Planned]) -> None:
    """Print the changes as a table, then what can be done instead of each that is refused."""
    if rows:
        table = Table("change", "made by", "state", "records in flight", box=None)
        for row in rows:
            table.add_row(row.what, row.by, row.state, row.in_flight)
        print_table(Console(), table)
    for row in rows:
        if row.way:
            print(printable(f"{row.what}: {row.way}"))


def _summary(rows: Sequence[Planned], reference: str) -> str:
    by = {row.by for row in rows}
    if By.REFUSED in by:
        return "some changes are refused: nothing of this code can run on this job's state"
    if By.APPLY in by:
        return f"stop the job, then apply the changes: grete apply {reference}"
    return "nothing to apply: the job starts with this code"
