"""`grete apply`: what the plan of a changed job says, done while no worker runs."""

import typer

from grete.cli.commands.plan import show
from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.moved_state import say, standing_still
from grete.job.metadata import pinned_settings
from grete.state.pins.pinning import DEFINED, copy_definition
from grete.state.pins.pins import pin_of, put_in_place
from grete.state.pins.plan import By, pinned_of, plan_of
from grete.state.write.apply import apply as apply_plan
from grete.state.write.apply import wirings_of
from grete.worker.members.members_seen import refuse_members

app = typer.Typer(add_completion=False)


@job_command(app)
def apply(named: NamedJob) -> None:
    """Make the changes of a stopped job that grete plan shows as applied, as a whole or not at all.

    What is dropped is given up for good, and the code of before cannot start any more.
    """
    with named.change() as (job, log):
        rows = plan_of(job, log, named.settings)
        show(rows)
        if rows and all(row.by is By.START for row in rows):
            say(f"nothing to apply: a start makes these changes: {named.start(named.reference, named.directory)}")
            return
        job_directory = named.place(job)
        ended = refuse_members(job, named.address, named.settings)
        with standing_still(job_directory, job, wirings_of(pinned_of(job, log)[1])):
            put_in_place(log, job.name, log.open_metadata(job.name))
            if not rows:
                copy_definition(pin_of(log, job.name, DEFINED) or b"", job_directory.state_directory)
                say("nothing to apply: the job has this code's definition")
                return
            settings = pinned_settings(job, log, named.settings)
            apply_plan(job, log, job_directory, settings, rows, ended=ended)
    say(f"applied: now start the job with this code: {named.start(named.reference, named.directory)}")
