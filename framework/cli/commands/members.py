"""`grete members`: the machines that run a job, and what each of them has."""

from collections.abc import Iterator

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from grete.api.jobs.job import Job
from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.options import AsJson
from grete.cli.output.reading import print_json
from grete.cli.output.tables import print_table
from grete.clock_text import clock_text
from grete.core.members.view import MembersView
from grete.errors import ConfigError
from grete.job.loader import load_job
from grete.state.read.shown import printable
from grete.worker.members.members_seen import SeenMembers

app = typer.Typer(add_completion=False)


class StandbyText(msgspec.Struct, frozen=True):
    """A partition that a member keeps ready: the checkpoint that it has, and the messages that it has still to read.

    ``behind`` None: it restores.
    """

    position: int
    behind: int | None

    def __str__(self) -> str:
        return " restoring" if self.behind is None else f", {self.behind:,} behind"


class ShownMember(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as far as it is known. ``since_ms``: when it began, in ms since 1970, None: not known.

    ``code``: a digest of it, "": not known. ``partitions``: those that it has active, with their states.
    ``follows``: the offset of its assignment.
    """

    member: str
    session: str
    machine: str
    since_ms: int | None
    code: str
    state: str
    partitions: dict[int, str]
    standbys: dict[int, StandbyText]
    age_s: float
    follows: int | None


@job_command(app, without="directory")
def members(named: NamedJob, *, json: AsJson = False) -> None:
    """Show the machines that run a job on Kafka: their partitions, standbys, and last heartbeats."""
    job, address = load_job(named.reference), named.address
    if not address.on_kafka:
        raise ConfigError(
            "a job whose log is not Kafka runs on one machine alone, and has no members: give --log kafka://host:port"
        )
    seen = SeenMembers(job, address, named.settings)
    rows = list(_rows(seen))
    if json:
        for row in rows:
            print_json(row)
        return
    console = Console()
    if not rows:
        console.print(f"no member of job {job.name!r} has run within the last hour")
        return
    table = Table(
        "member", "machine", "since", "code", "state", "partitions", "standbys", "last said", "follows", box=None
    )
    for row in rows:
        table.add_row(
            row.member,
            row.machine,
            "–" if row.since_ms is None else clock_text(row.since_ms),
            row.code or "–",
            row.state,
            ", ".join(f"{number} {state}" for number, state in row.partitions.items()) or "–",
            ", ".join(f"{number}{standby}" for number, standby in row.standbys.items()) or "–",
            f"{row.age_s:,.1f} s ago",
            "–" if row.follows is None else str(row.follows),
        )
    print_table(console, table)
    _print_ownerless(console, seen.view, job)


def _rows(seen: SeenMembers) -> Iterator[ShownMember]:
    """Yield the sessions that have not left, the first one first; the leader is the first that lives."""
    leads = True
    ages, view = seen.ages_ms, seen.view
    for member in view.live():
        said, lives = member.heartbeat, member.session in seen.fresh
        # what a silent one said last it may have lost since: the assignment says so, and it follows that or is fenced
        held = [each for each in said.held if lives or view.place(each.partition).owner in ("", member.session)]
        state = "silent" if not lives else "leaving" if said.leaving else "leads" if leads else "lives"
        leads &= state != "leads"
        yield ShownMember(
            member=said.member,
            session=said.session,
            machine=said.machine,
            since_ms=said.since_ms or None,
            code=said.code or "",
            state=state,
            partitions={p.partition: p.state for p in held if p.state not in ("standby", "stored")},
            standbys={
                p.partition: StandbyText(p.position, None if p.behind < 0 else p.behind)
                for p in said.held
                if p.state == "standby" and (lives or member.session in view.place(p.partition).standbys)
            },
            age_s=max(0, ages.get(member.session, 0)) / 1000,
            follows=None if said.follows < 0 else said.follows,
        )


def _print_ownerless(console: Console, view: MembersView, job: Job) -> None:
    for partition in range(job.workers):
        if partition in view.halted:
            who = view.halted[partition].member
            console.print(
                printable(f"partition {partition} has halted on member {who}: look there, and start it again"),
                markup=False,
            )
        elif view.assignment is not None and not view.place(partition).owner:
            console.print(f"partition {partition} has no owner")
