"""`grete apply`: what the plan of a changed job says, done while no worker runs."""

from pathlib import Path

from grete.cli.commands.plan import show
from grete.cli.job_target import log_to_change
from grete.cli.moved_state import say, standing_still
from grete.job.directory import JobDirectory, directory_of
from grete.job.metadata import pinned_settings
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.state.apply import apply as apply_plan
from grete.state.apply import wirings_of
from grete.state.pinning import DEFINED, copy_definition
from grete.state.pins import pin_of, put_in_place
from grete.state.plan import By, pinned_of, plan_of
from grete.worker.members_seen import refuse_members


def apply(reference: str, directory: Path | None, address: LogAddress, settings: Settings) -> None:
    """Print the plan and do what it says. Raises ConfigError: a change is refused, or a worker is at work."""
    with log_to_change(reference, directory, address) as (job, log):
        rows = plan_of(job, log, settings)
        show(rows)
        if rows and all(row.by is By.START for row in rows):
            say(f"nothing to apply: a start makes these changes: grete run {reference}")
            return
        job_directory = JobDirectory(directory_of(job, directory, address), address=address)
        refuse_members(job, address, settings)
        with standing_still(job_directory, job, wirings_of(pinned_of(job, log)[1])):
            put_in_place(log, job.name, log.open_metadata(job.name))
            if not rows:
                copy_definition(pin_of(log, job.name, DEFINED) or b"", job_directory.state_directory)
                say("nothing to apply: the job has this code's definition")
                return
            apply_plan(job, log, job_directory, pinned_settings(job, log, settings), rows)
    say(f"applied: now start the job with this code: grete run {reference}")
