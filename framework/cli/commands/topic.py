"""`grete topic`: reads the records of an external topic, and writes some."""

import sys
import time
from typing import Annotated, Any

import msgspec
import typer

from grete.api.serdes.hex_bytes import HexHeader
from grete.api.topics.topic import Topic
from grete.cli.feeding import external_inputs, open_lines
from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.options import AsJson, LineOptions
from grete.cli.output.progress import counted
from grete.cli.output.reading import print_json
from grete.clients.pipe import spool_lines
from grete.clients.writer import Writer
from grete.errors import ConfigError
from grete.execution.records.decoding import headers_of
from grete.logs.open_transactions import told_all
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.state.read.shown import decoded, decoded_plain, external_topics, last_rows, rows_from

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Read and write the external topics of a job.")


PAUSE_S = 0.02  # while nothing can be read, or the log does not answer


class RecordRow(msgspec.Struct, frozen=True, kw_only=True):
    """A record as JSON has it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: object
    value: object
    headers: list[tuple[str, str | HexHeader | None]]


@job_command(app, "read", without="set")
def topic_read(
    named: NamedJob,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic that the job reads or writes outside.")],
    *,
    count: Annotated[
        int, typer.Option("-n", min=0, help="Print only this many last records of each partition; 0: all.")
    ] = 0,
    json: AsJson = False,
) -> None:
    """Print the records of an external topic, decoded: partition, offset, key, value."""
    with named.read() as (job, log):
        topics = external_topics(job, log)
        if name not in topics:
            raise ConfigError(f"job {job.name!r} has no external topic {name!r}: it has {', '.join(sorted(topics))}")
        topic, places = topics[name], [TopicPartition(name, number) for number in range(log.partitions(name) or 0)]
        for at in places:
            for row in last_rows(log, at, count) if count else rows_from(log, at, 0):
                if json:
                    print_json(_record(topic, at, row))
                    continue
                key, value = decoded(topic.key, row.key, row.headers), decoded(topic.value, row.value, row.headers)
                print(f"{at.partition}\t{row.offset}\t{key}\t{value}")
        for text in told_all(log, places):
            print(text, file=sys.stderr)  # not among the records, which a program may read


@job_command(app, "write", without="set")
def topic_write(
    named: NamedJob,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic that the job reads from outside.")],
    source: Annotated[str, typer.Argument(metavar="[FILE]", help="A file; default: standard input (-).")] = "-",
    *,
    lines: LineOptions = LineOptions(),
) -> None:
    """Write records to a topic that the job reads, one for each line, whether the job runs or not."""
    found = named.target()
    if (topic := external_inputs(found.job).get(name)) is None:
        known = ", ".join(external_inputs(found.job))
        raise ConfigError(f"job {found.job.name!r} does not read topic {name!r} from outside: it reads {known}")
    opened = open_lines(topic, source, f"topic write {name} {source}")
    address, directory = found.job_directory.address, found.job_directory.directory
    written = 0
    with Writer(found.job, topic, log=address.url, kafka_config=address.config, directory=directory) as writer:
        for number in spool_lines(writer, topic, opened.handle, lines.form):
            if number == written:
                time.sleep(PAUSE_S)
            written = number
    print(f"{counted(written, 'record')} written to {name}")


def _record(topic: Topic[Any, Any], at: TopicPartition, row: LogRow) -> RecordRow:
    return RecordRow(
        topic=at.topic,
        partition=at.partition,
        offset=row.offset,
        timestamp_ms=row.timestamp_ms,
        key=decoded_plain(topic.key, row.key, row.headers),
        value=decoded_plain(topic.value, row.value, row.headers),
        headers=[(name, None if content is None else _text(content)) for name, content in headers_of(row.headers)],
    )


def _text(content: bytes) -> str | HexHeader:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return HexHeader(content.hex())  # what is written again is what was read
