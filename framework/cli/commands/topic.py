"""`grete topic read`: the records of an external topic."""

from pathlib import Path
from typing import Any

from framework.api.topic import Topic
from framework.cli.job_target import existing_log
from framework.cli.reading import decoded, decoded_plain, print_json, rows_from
from framework.errors import ConfigError
from framework.execution.decoding import headers_of
from framework.logs.address import LogAddress
from framework.ports import LogReader, LogRow
from protocol.ids import TopicPartition


def topic_read(
    reference: str, name: str, count: int, directory: Path | None, address: LogAddress, *, as_json: bool = False
) -> None:
    """Print the records of an external topic, of all partitions or of those that are left after trimming."""
    with existing_log(reference, directory, address) as (job, log):
        topics: dict[str, Topic[Any, Any]] = dict(job.external_sinks())
        externals = {topic for stage in job.stages for topic in job.topology().externals_of(stage.ordinal)}
        topics |= {t.name: t for stage in job.stages for t in stage.topics_read() if t.name in externals}
        if name not in topics:
            raise ConfigError(f"job {job.name!r} has no external topic {name!r}: it has {', '.join(sorted(topics))}")
        topic = topics[name]
        for partition in range(log.partitions(name) or 0):
            at = TopicPartition(name, partition)
            for row in _last_rows(log, at, count) if count else rows_from(log, at, 0):
                if as_json:
                    print_json(_record(topic, at, row))
                    continue
                key, value = decoded(topic.key, row.key, row.headers), decoded(topic.value, row.value, row.headers)
                print(f"{partition}\t{row.offset}\t{key}\t{value}")


def _record(topic: Topic[Any, Any], at: TopicPartition, row: LogRow) -> dict[str, Any]:
    """Return a record as JSON has it."""
    return {
        "topic": at.topic,
        "partition": at.partition,
        "offset": row.offset,
        "timestamp_ms": row.timestamp_ms,
        "key": decoded_plain(topic.key, row.key, row.headers),
        "value": decoded_plain(topic.value, row.value, row.headers),
        "headers": [[name, content.decode(errors="replace")] for name, content in headers_of(row.headers)],
    }


def _last_rows(log: LogReader, partition: TopicPartition, count: int) -> list[LogRow]:
    """Return the last records, oldest first. Offsets are no count: the ends of transactions take some, too."""
    window = count
    while True:
        start, end = log.bounds(partition)
        begin = max(start, end - window)
        found = list(rows_from(log, partition, begin))
        if len(found) >= count or begin == start:
            return found[-count:]
        window *= 4
