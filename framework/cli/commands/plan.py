"""`grete plan`: what a start with the code, or `grete apply`, would do to a job."""

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.table import Table

from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob, options_for
from grete.cli.moved_state import say
from grete.cli.options import AsJson
from grete.cli.output.reading import print_json
from grete.cli.output.tables import print_table
from grete.errors import ExitCode
from grete.state.pins.plan import By, PlanRow, plan_of
from grete.state.read.shown import printable

app = typer.Typer(add_completion=False)


@job_command(app)
def plan(named: NamedJob, *, json: AsJson = False) -> ExitCode:
    """Compare a job's code with its state: each change, and what happens to state and to records in flight.

    It writes nothing. Exit codes: 0 the code starts as it is, 1 changes wait for grete apply, 2 a change is refused.
    """
    with named.compare() as (job, log):
        rows = plan_of(job, log, named.settings)
    if json:
        for row in rows:
            print_json(row._asdict())
    else:
        show(rows)
        say(_summary(rows, f"{named.reference}{options_for(named.address, named.directory)}"))
    by = {row.by for row in rows}
    return ExitCode.USAGE if By.REFUSED in by else ExitCode.FAILED if By.APPLY in by else ExitCode.DONE


def show(rows: Sequence[PlanRow]) -> None:
    """Print the changes as a table, then what can be done instead of each that is refused."""
    if rows:
        table = Table("change", "made by", "state", "records in flight", box=None)
        for row in rows:
            table.add_row(row.what, row.by, row.state, row.in_flight)
        print_table(Console(), table)
    for row in rows:
        if row.way:
            print(printable(f"{row.what}: {row.way}"))


def _summary(rows: Sequence[PlanRow], job: str) -> str:
    by = {row.by for row in rows}
    if By.REFUSED in by:
        return "some changes are refused: nothing of this code can run on this job's state"
    if By.APPLY in by:
        return f"stop the job, then apply the changes: grete apply {job}"
    return "nothing to apply: the job starts with this code"
