"""Pins in a job's metadata where its inputs begin, and where those that are read first end, as of its first start."""

import json
import logging
from datetime import datetime
from typing import Any, NamedTuple

from framework.api.job import Job
from framework.api.topic import StartPosition
from framework.core.task_topology import wire
from framework.errors import ConfigError
from framework.ports import JobLog, JobLogReader, JobMetadata, MetadataReader
from framework.state.commits import last_commit
from protocol.ids import TopicPartition

_FORMAT = 1  # of a stored entry: a reader refuses another one

logger = logging.getLogger("grete.definition")  # commands show its lines to the person at the terminal


class Settled(NamedTuple):
    """What the first start of a job has settled, by stage ordinal and topic; absent: nothing.

    ``times_ms``: of inputs that begin with the first record of a time. ``latest``: those that begin behind what was
    there then. ``tables``: by external partition, where an input with ``bootstrap=True`` ended.
    """

    times_ms: dict[tuple[int, str], int]
    latest: set[tuple[int, str]]
    tables: dict[tuple[int, TopicPartition], int]


def know_starts(job: Job, log: JobLogReader) -> Settled:
    """Let a job take over where its inputs begin, and return what else its first start has settled; write nothing.

    Raises ConfigError: a newer release has pinned it.
    """
    metadata = log.read_metadata(job.name)
    _take_over(job, metadata)
    settled = Settled({}, set(), {})
    for stage in job.stages:
        for topic in job.topology().externals_of(stage.ordinal):
            start = _entry(metadata, _start_key(stage.name, topic))["start"]
            if start == "latest":
                settled.latest.add((stage.ordinal, topic))
            elif start != "earliest":
                settled.times_ms[stage.ordinal, topic] = _ms(datetime.fromisoformat(start))
            ends = _entry(metadata, _table_key(stage.name, topic))["offsets"]
            settled.tables.update(((stage.ordinal, TopicPartition(topic, n)), end) for n, end in enumerate(ends))
    return settled


def pin_starts(job: Job, log: JobLog, metadata: JobMetadata) -> None:
    """Settle where inputs begin that others write, if the job is new to them; let ``job`` take over what is settled.

    The topics are there. Code that says another place than the settled one is told of it: the place stays. Where an
    input that is read first ends now is settled, too: an audit of an aligned job goes by it.
    Raises ConfigError: a newer release has pinned one.
    """
    topology = job.topology()
    for stage in job.stages:
        declared = stage.starts()
        for topic in topology.externals_of(stage.ordinal):
            partitions = [TopicPartition(topic, number) for number in range(log.partitions(topic) or 0)]
            key, start = _start_key(stage.name, topic), _text(declared.get(topic, "earliest"))
            new = {}
            if topic in declared and metadata.meta_get(key) is None:
                new[key] = {"format": _FORMAT, "start": start}, [_offset(log, p, declared[topic]) for p in partitions]
            table = _table_key(stage.name, topic)
            if topic in stage.topics_read_first() and metadata.meta_get(table) is None:
                new[table] = {"format": _FORMAT}, [log.bounds(p)[1] for p in partitions]
            if new and not _has_read(job, log, stage.ordinal, topic):
                entries = {key: json.dumps(entry | {"offsets": offsets}) for key, (entry, offsets) in new.items()}
                metadata.produce_with_meta([], {key: text.encode() for key, text in entries.items()}, sync=True)
            found = _entry(metadata, key)  # of two workers that start together, the last one's counts for both
            if start != found["start"]:
                logger.warning(
                    "stage %s has begun to read topic %s with start=%s, and this code says start=%s: it goes on from "
                    "where it is. Only a job of another name begins elsewhere",
                    stage.name,
                    topic,
                    found["start"],
                    start,
                )
    _take_over(job, metadata)


def _take_over(job: Job, metadata: MetadataReader) -> None:
    topology, starts = job.topology(), dict[int, dict[TopicPartition, int]]()
    for stage in job.stages:
        for topic in topology.externals_of(stage.ordinal):
            offsets = _entry(metadata, _start_key(stage.name, topic))["offsets"]
            places = {TopicPartition(topic, number): offset for number, offset in enumerate(offsets)}
            starts.setdefault(stage.ordinal, {}).update(places)
    job.start_at(starts)


def _start_key(stage: str, topic: str) -> str:
    return f"start {stage}/{topic}"


def _table_key(stage: str, topic: str) -> str:
    return f"table {stage}/{topic}"


def _entry(metadata: MetadataReader, key: str) -> dict[str, Any]:
    return _decoded(key, metadata.meta_get(key))


def _decoded(key: str, raw: bytes | None) -> dict[str, Any]:
    entry = {"format": _FORMAT, "start": "earliest", "offsets": []} if raw is None else json.loads(raw)
    if entry["format"] != _FORMAT:
        raise ConfigError(
            f"the entry {key!r} of the job's metadata has format {entry['format']}, this release knows "
            f"{_FORMAT}: start the job with the release that wrote it, or a later one"
        )
    return dict(entry)


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _text(start: StartPosition) -> str:
    return start.isoformat() if isinstance(start, datetime) else start


def _offset(log: JobLog, partition: TopicPartition, start: StartPosition) -> int:
    if isinstance(start, datetime):
        return log.offset_at(partition, _ms(start))
    return log.bounds(partition)[1]


def _has_read(job: Job, log: JobLog, stage: int, topic: str) -> bool:
    """Tell whether a task of the stage has committed a position in the topic: it has begun with the first record."""
    topology = job.topology()
    for number in range(topology.stages[stage].partitions):
        last = last_commit(log, wire(topology, stage, number).changelog)
        if last is not None and any(entry.topic == topic for entry in last.commit.external):
            return True
    return False
