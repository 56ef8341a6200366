"""`grete dlq`: the dead letters of a job, listed, shown and sent again."""

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from json import dumps
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from grete.api.jobs.job import Job
from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.options import AsJson
from grete.cli.output.reading import print_json
from grete.cli.output.tables import print_table
from grete.clock_text import SECONDS, clock_text
from grete.errors import ConfigError
from grete.job.dead_letters import Letter, Offsets, Redrive, letters, redriven, serdes_of
from grete.logs.open_transactions import told_all
from grete.ports import JobLogReader
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.state.read.letter_condition import condition
from grete.state.read.shown import decoded, printable

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="List, show and send again the dead letters of a job."
)
OnlyLetters = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=TEXT",
        help="Only letters that match this; may be repeated. Fields: dlq, partition, offset (of the letter), "
        "stage, topic, source (such as orders[0]), key, window, join, timer (its time), which are to equal the text; "
        "error is to contain it, class is that of the error; from=TIME and to=TIME (ISO 8601, UTC if it has no zone): "
        "the record's time, from the one and before the other.",
    ),
]


@job_command(app, "list", without="set")
def dlq_list(named: NamedJob, *, json: AsJson = False) -> None:
    """Count the dead letters by topic, stage and error, and those that were sent again."""
    with named.read() as (job, log):
        _check_has_letters(job)
        held, again = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        times: dict[tuple[str, ...], list[int]] = {}
        sent = _sent(job, log)
        for letter in letters(log, job):
            kind = letter.at.topic, letter.told.get("stage", ""), letter.error_class, letter.origin
            held[kind] += 1
            again[kind] += letter.offset in sent(letter.at)
            times.setdefault(kind, []).append(letter.timestamp_ms)
    rows = [
        {
            **dict(zip(("dlq", "stage", "error", "topic"), kind, strict=True)),
            "letters": count,
            "sent_again": again[kind],
            "first": _time(min(times[kind])),
            "last": _time(max(times[kind])),
        }
        for kind, count in sorted(held.items())
    ]
    if json:
        for row in rows:
            print_json(row)
        return
    columns = "dead-letter topic", "stage", "error", "from topic", "letters", "sent again", "first", "last"
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else printable(str(cell)) for cell in row.values()))
    print_table(Console(), table)


@job_command(app, "show", without="set")
def dlq_show(
    named: NamedJob,
    *,
    where: OnlyLetters = None,
    count: Annotated[int, typer.Option("-n", min=1, help="Print only this many last letters.")] = 10,
    json: AsJson = False,
) -> None:
    """Print dead letters: error, traceback, and the record as it came."""
    wanted = condition(where or ())
    with named.read() as (job, log):
        _check_has_letters(job)
        found = [letter for letter in letters(log, job) if wanted(job, letter)][-count:]
        _print_letters(job, log, found, as_json=json)


@job_command(app, "redrive", without="set")
def dlq_redrive(named: NamedJob, *, where: OnlyLetters = None) -> None:
    """Send records of dead letters to the topic that they came from, and outputs to their sinks; each once.

    The job may run meanwhile. Where a web service is asked again, it knows the output by the key that it had.
    """
    wanted = condition(where or ())
    with named.write() as (job, log):
        _check_has_letters(job)
        place = named.place(job)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, place.lock_redrive())
            redrive = Redrive(job, log)
            console = Console(stderr=True)
            with console.status("sending letters again") as status:
                for sent in redrive.run(functools.partial(wanted, job)):
                    status.update(f"{sent:,} letters sent again")
            hidden = told_all(log, redrive.places)
    for topic, count in sorted(redrive.sent.items()):
        print(f"{topic}: sent again: {count:,}")
    for origin, count in sorted(redrive.outputs.refused.items()):
        print(f"{origin}: refused again: {count:,}: repair the sink, then send them once more")
    topics = {topic.name for stage in job.stages for topic in stage.topics_read()}
    for origin, count in sorted(redrive.left.items()):
        why = "the job reads no topic of this name from outside" if origin in topics else "no record of an input failed"
        why = "the code declares no such output to a sink" if origin.startswith("output ") else why
        print(f"{origin}: left: {count:,}: {why}")
    for topic, count in sorted(redrive.again.items()):
        print(f"{topic}: more letters of records that were sent: {count:,}")
    for text in hidden:
        print(f"letters that cannot be read yet are left: {text}")
    if not (redrive.sent or redrive.left or redrive.again or redrive.outputs.refused):
        print("no letter to send: none matches, or all were sent before")


def _check_has_letters(job: Job) -> None:
    if not any(stage.dead_letters() for stage in job.stages):
        raise ConfigError(
            f"job {job.name!r} has no dead-letter topic: write Input(…, errors=DeadLetter(topic)) in a task"
        )


def _print_letters(job: Job, log: JobLogReader, found: Sequence[Letter], *, as_json: bool) -> None:
    sent = _sent(job, log)
    for letter in found:
        key_serde, value_serde = serdes_of(job, letter)
        cell = encode_headers(letter.headers)
        key, value = decoded(key_serde, letter.key, cell), decoded(value_serde, letter.value, cell)
        told = {name: text for name, text in letter.told.items() if name != "traceback"}
        again = letter.offset in sent(letter.at)
        headers = {
            name: "null" if content is None else printable(content.decode(errors="replace"))
            for name, content in letter.headers
        }
        lines = {
            **{name: printable(text) for name, text in told.items()},
            "time": _time(letter.timestamp_ms),
            "key": key,
            "value": value,
            "headers": headers,
            "sent_again": again,
        }
        traceback = letter.told.get("traceback", "")
        if as_json:
            place = {"dlq": letter.at.topic, "dlq_partition": letter.at.partition, "dlq_offset": letter.offset}
            print_json({**place, **lines, "traceback": traceback})
            continue
        print(f"{letter.at} offset {letter.offset}")
        for name, text in lines.items():
            shown = dumps(text, ensure_ascii=False) if isinstance(text, dict) else str(text)
            print(f"  {name.replace('_', ' '):<11}{shown}")
        for line in traceback.splitlines():
            print(f"  {printable(line)}")


def _sent(job: Job, log: JobLogReader) -> Callable[[TopicPartition], Offsets]:
    """Return a function that tells which letters of a partition were sent again; each is looked up once."""
    return functools.cache(functools.partial(redriven, log.read_metadata(job.name)))


def _time(timestamp_ms: int) -> str:
    return clock_text(timestamp_ms, f"{SECONDS}Z", utc=True)
