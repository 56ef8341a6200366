"""Pins in a job's metadata at which offsets its inputs begin: its first start settles it for all tasks."""

import json
import logging
from datetime import datetime
from typing import Any

from framework.api.job import Job
from framework.api.topic import StartPosition
from framework.core.task_topology import wire
from framework.errors import ConfigError
from framework.ports import JobLog, JobMetadata
from framework.state.commits import last_commit
from protocol.ids import TopicPartition

_FORMAT = 1  # of a stored entry: a reader refuses another one

logger = logging.getLogger("grete.definition")  # commands show its lines to the person at the terminal


def pin_starts(job: Job, log: JobLog, metadata: JobMetadata) -> None:
    """Settle where inputs begin that others write, if the job is new to them; let ``job`` take over what is settled.

    The topics are there. Code that says another place than the settled one is told of it: the place stays.
    Raises ConfigError: a newer release has pinned one.
    """
    topology, starts = job.topology(), dict[int, dict[TopicPartition, int]]()
    for stage in job.stages:
        declared = stage.starts()
        for topic in topology.externals_of(stage.ordinal):
            key, start = f"start {stage.name}/{topic}", _text(declared.get(topic, "earliest"))
            raw = metadata.meta_get(key)
            if raw is None and topic in declared and not _has_read(job, log, stage.ordinal, topic):
                offsets = [
                    _offset(log, TopicPartition(topic, number), declared[topic])
                    for number in range(log.partitions(topic) or 0)
                ]
                entry = {"format": _FORMAT, "start": start, "offsets": offsets}
                metadata.produce_with_meta([], {key: json.dumps(entry).encode()}, sync=True)
                raw = metadata.meta_get(key)  # of two workers that start together, the last one's counts for both
            found = _decoded(key, raw)
            starts.setdefault(stage.ordinal, {}).update(
                {TopicPartition(topic, number): offset for number, offset in enumerate(found["offsets"])}
            )
            if start != found["start"]:
                logger.warning(
                    "stage %s has begun to read topic %s with start=%s, and this code says start=%s: it goes on from "
                    "where it is. Only a job of another name begins elsewhere",
                    stage.name,
                    topic,
                    found["start"],
                    start,
                )
    job.start_at(starts)


def _decoded(key: str, raw: bytes | None) -> dict[str, Any]:
    entry = {"format": _FORMAT, "start": "earliest", "offsets": []} if raw is None else json.loads(raw)
    if entry["format"] != _FORMAT:
        raise ConfigError(
            f"the entry {key!r} of the job's metadata has format {entry['format']}, this release knows "
            f"{_FORMAT}: start the job with the release that wrote it, or a later one"
        )
    return dict(entry)


def _text(start: StartPosition) -> str:
    return start.isoformat() if isinstance(start, datetime) else start


def _offset(log: JobLog, partition: TopicPartition, start: StartPosition) -> int:
    if isinstance(start, datetime):
        return log.offset_at(partition, round(start.timestamp() * 1000))
    return log.bounds(partition)[1]


def _has_read(job: Job, log: JobLog, stage: int, topic: str) -> bool:
    """Tell whether a task of the stage has committed a position in the topic: it has begun with the first record."""
    topology = job.topology()
    for number in range(topology.stages[stage].partitions):
        last = last_commit(log, wire(topology, stage, number).changelog)
        if last is not None and any(entry.topic == topic for entry in last.commit.external):
            return True
    return False
