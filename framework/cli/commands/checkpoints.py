"""`grete checkpoints`: the last commit of each task."""

import time
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
from grete.logs.open_transactions import told_all
from grete.ports import LogReader
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import all_wirings, ends_of, last_commit, readable_ends

app = typer.Typer(add_completion=False)


class InputRow(msgspec.Struct, frozen=True):
    """The position in a partition of an external input, and its end."""

    offset: int
    end: int


class NothingCommitted(msgspec.Struct, frozen=True):
    """A task that has committed nothing yet."""

    task: str
    checkpoint_id: None = None


class CheckpointRow(msgspec.Struct, frozen=True):
    """The last commit of a task. ``messages_behind``: in its streams, None: it reads none."""

    task: str
    generation: int
    checkpoint_id: int
    age_s: float
    inputs: dict[str, InputRow]
    messages_behind: int | None


@job_command(app, without="set")
def checkpoints(named: NamedJob, *, json: AsJson = False) -> None:
    """Show the last commit of each task: generation, checkpoint, age, positions in the inputs, and lag."""
    with named.read() as (job, log):
        if json:
            for row in _rows(job, log):
                print_json(row)
            return
        table = Table("task", "generation", "checkpoint", "age", "external inputs", "behind", box=None)
        for row in _rows(job, log):
            if isinstance(row, NothingCommitted):
                table.add_row(row.task, "–", "nothing committed yet")
                continue
            inputs = [f"{name} {at.offset:,} of {at.end:,}" for name, at in row.inputs.items()]
            behind = row.messages_behind
            table.add_row(
                row.task,
                str(row.generation),
                str(row.checkpoint_id),
                f"{row.age_s:,.1f} s",
                ", ".join(inputs) or "–",
                "–" if behind is None else f"{behind:,} messages",
            )
        hidden = told_all(log, [partition for wiring in all_wirings(job) for partition in wiring.external])
    print_table(Console(), table)
    for text in hidden:
        print(text)


def _rows(job: Job, log: LogReader) -> Iterator[CheckpointRow | NothingCommitted]:
    """Yield a row of each task."""
    now_ms = time.time_ns() // 1_000_000
    names = {wiring.changelog: wiring.name for wiring in all_wirings(job)}
    for changelog, bounds in ends_of(log, names):
        last = last_commit(log, changelog, bounds)
        if last is None:
            yield NothingCommitted(names[changelog])
            continue
        commit = last.commit
        streams = {TopicPartition(i.topic, i.partition): i.resume for i in commit.inputs}
        external = {TopicPartition(e.topic, e.partition): e.offset for e in commit.external}
        inputs = log.all_bounds({**streams, **external})
        behind = sum(inputs[at][1] - resume for at, resume in streams.items())
        ends = readable_ends(log, external, {at: inputs[at][1] for at in external})
        yield CheckpointRow(
            task=names[changelog],
            generation=commit.generation,
            checkpoint_id=commit.checkpoint_id,
            age_s=max(0, now_ms - last.append_time_ms) / 1000,
            inputs={str(at): InputRow(offset, ends[at]) for at, offset in external.items()},
            messages_behind=behind if commit.inputs else None,
        )
