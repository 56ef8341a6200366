"""`grete check-determinism`: replays a deterministic job and compares its outputs."""

import random
from typing import Annotated

import typer

from grete.api.jobs.job import Job
from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.output.progress import counted
from grete.errors import ExitCode
from grete.replay.determinism.elsewhere import ReplaySpec, replay_elsewhere
from grete.replay.determinism.replay import ReplayResult, replay
from grete.replay.determinism.report import is_same, report
from grete.state.read.shown import printable

app = typer.Typer(add_completion=False)


@job_command(app)
def check_determinism(
    named: NamedJob,
    *,
    since: Annotated[
        int,
        typer.Option(
            help="Replay from this checkpoint of the sources on, or from the first one after it that is retained."
        ),
    ] = 0,
) -> ExitCode:
    """Replay the history of a deterministic job in memory twice, and compare its outputs; exit 1 if one differs."""
    with named.read() as (job, log):
        found = replay(job, log, named.settings, since)
    print(f"{counted(found.records, 'input record')} replayed, {counted(found.compared, 'output')} compared")
    if is_same(found):
        found = _elsewhere(found, job, named)
    if is_same(found):
        print("all of them are the same")
        return ExitCode.DONE
    for line in report(found, job):
        print(printable(line))
    return ExitCode.FAILED


def _elsewhere(found: ReplayResult, job: Job, named: NamedJob) -> ReplayResult:
    """Replay once more, from a later checkpoint and in another process; return ``found`` if there is none."""
    if not found.restarts:
        print("no later commit has records behind it, so state outside of stores was not looked for")
        return found
    restart = random.choice(found.restarts)  # noqa: S311  # any will do, and another one the next time
    again = replay_elsewhere(
        ReplaySpec(
            job=named.reference,
            path=str(named.place(job, make=False).directory / "log.db"),
            log=named.address.url,
            kafka_config=None if named.address.config is None else str(named.address.config),
            settings=named.settings,
            since=restart,
        )
    )
    print(
        f"from checkpoint {restart}, in another process: {counted(again.records, 'input record')} replayed, "
        f"{counted(again.compared, 'output')} compared"
    )
    return again
