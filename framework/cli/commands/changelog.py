"""`grete changelog tail` and `grete changelog verify`: the contents of changelogs."""

from typing import Annotated

import msgspec
import typer

from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.options import AsJson
from grete.cli.output.reading import print_json
from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.changelog.damage import check_generation
from grete.errors import Halted
from grete.halts import HaltCode
from grete.ports import LogReader
from grete.protocol.ids import TopicPartition
from grete.state.read.changelog_text import clock, message_in
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.shown import printable, rows_from

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Read and check the changelogs of a job.")


@job_command(app, "tail", without="set")
def changelog_tail(
    named: NamedJob,
    stage: Annotated[str, typer.Argument(help="The stage of the task.")],
    partition: Annotated[int, typer.Argument(help="The partition of the task.")],
    *,
    count: Annotated[int, typer.Option("-n", help="Print this many messages.")] = 20,
    json: AsJson = False,
) -> None:
    """Print the last messages of a task's changelog."""
    with named.read() as (job, log):
        ordinal = job.stage(stage).check_partition(partition).ordinal
        changelog = TopicPartition(job.topology().changelog(ordinal), partition)
        _, end = log.bounds(changelog)
        for row in rows_from(log, changelog, end - count):
            told = message_in(row.value or b"")
            if json:
                print_json({"offset": row.offset, "append_time_ms": row.append_time_ms, **msgspec.to_builtins(told)})
                continue
            header = "" if told.seq is None else f"generation {told.generation}\tseq {told.seq}\t"
            text = "\t".join(filter(None, (told.type, told.text)))
            print(f"{row.offset}\t{clock(row.append_time_ms)}\t{header}{text}")


@job_command(app, "verify", without="set")
def changelog_verify(named: NamedJob, *, json: AsJson = False) -> None:
    """Read every changelog as a restore does, and check order, digests and commits; exit 4 if one is damaged."""
    with named.read() as (job, log):
        for wiring in all_wirings(job):
            found = _verified(log, wiring.changelog)
            print_json({"task": wiring.name, "found": found}) if json else print(f"{wiring.name}\tok\t{found}")


def _verified(log: LogReader, changelog: TopicPartition) -> str:
    """Fold a changelog and return what is in it. Raises Halted."""
    start, end = log.bounds(changelog)
    fold = ChangelogFold(changelog, start)
    commits = messages = 0
    for row in rows_from(log, changelog, start):
        segment = fold.feed(row.offset, row.value or b"")
        commits += segment is not None
        messages += 1 if segment is None else 0
    check_generation(changelog, fold.top + 1)  # that of the next start
    if commits and not fold.complete:
        raise Halted(
            f"{changelog}: trimmed, and it holds no complete rewrite round, so no state can be restored from it: "
            "restore the topic, or make the state from the history in a job of another name: grete backfill",
            partition=changelog,
            code=HaltCode.CHANGELOG_GONE,
        )
    in_doubt = "" if fold.in_doubt is None else f", then the bulk write {printable(fold.in_doubt)}, in doubt"
    checkpoint_id = "nothing committed" if fold.last is None else f"checkpoint {fold.last.checkpoint_id}"
    return (
        f"{commits:,} commits, {messages:,} other messages, {fold.invalid_messages:,} invalid, "
        f"generation {fold.top}, {checkpoint_id}{in_doubt}, offsets {start:,} to {end:,}"
    )
