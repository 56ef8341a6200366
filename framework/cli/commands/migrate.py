"""`grete migrate`: a job's keys and values in the newest version of the serdes."""

import typer

from grete.api.jobs.versions import NEWEST, outputs_in_two_ways
from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.moved_state import say, standing_still, tell_moved
from grete.cli.options import AssumeKeyed
from grete.job.metadata import pinned_settings
from grete.state.pins.pinning import check_definition
from grete.state.write.migrate import migrate as migrate_job
from grete.worker.members.members_seen import refuse_members

app = typer.Typer(add_completion=False)


@job_command(app, without="set")
def migrate(named: NamedJob, *, assume_keyed: AssumeKeyed = False) -> None:
    """Rewrite keys and values of a stopped job by the newest version of the serdes, as a whole or not at all.

    Two keys that would be one are refused, and named.
    """
    with named.write() as (job, log):
        check_definition(job, log)
        if job.serdes == NEWEST:
            say(f"nothing to migrate: {job.name} has version {NEWEST} of the serdes, the newest")
            return
        settings = pinned_settings(job, log, named.settings)
        ended = refuse_members(job, named.address, settings)
        with standing_still(named.place(job), job):
            moved = migrate_job(log, job, settings, assume_keyed=assume_keyed, ended=ended)
    tell_moved(moved, f"{job.name} has version {NEWEST} of the serdes")
    outputs = [name for stage in job.live for name in outputs_in_two_ways(stage)]
    if outputs:
        say(f"From now on {', '.join(outputs)} are written by it: rows of before keep their keys there")
    say(f"Now start it: {named.start(named.reference, named.directory)}")
