"""Pins in a job's metadata where its inputs begin, and where those that are read first end, as of its first start."""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Required, TypedDict

from grete.api.jobs.definition import decode_definition
from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.topics.topic import StartPosition
from grete.core.changelog.damage import entry as reading
from grete.core.graph.task_topology import wire
from grete.errors import ConfigError
from grete.logs.open_transactions import full_ends, stable_ends
from grete.ports import JobLog, JobLogReader, JobMetadata, MetadataReader
from grete.protocol.ids import TopicPartition
from grete.state.pins.pinning import DEFINED
from grete.state.read.checkpoints.commits import ends_of, last_commit

_FORMAT = 1  # of a stored entry: a reader refuses another one

logger = logging.getLogger("grete.definition")  # commands show its lines to the person at the terminal


class PinnedStart(TypedDict, total=False):
    """An entry of the metadata, as JSON has it. ``given``: a command line said so, and not the code."""

    format: Required[int]
    start: str
    offsets: Required[list[int]]
    given: bool


class SettledStarts(NamedTuple):
    """The positions that the first start of a job settled, by stage ordinal and topic; absent: none.

    ``times_ms``: of inputs that begin with the first record of a time. ``latest``: those that begin behind what was
    there then. ``tables``: by external partition, where an input with ``bootstrap=True`` ended.
    """

    times_ms: dict[tuple[int, str], int]
    latest: set[tuple[int, str]]
    tables: dict[tuple[int, TopicPartition], int]


def know_starts(job: Job, log: JobLogReader) -> SettledStarts:
    """Let a job take over where its inputs begin, and return what else its first start has settled; write nothing.

    Raises ConfigError: a newer release has pinned it.
    """
    metadata = log.read_metadata(job.name)
    _take_over(job, metadata)
    settled = SettledStarts({}, set(), {})
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


def pin_starts(job: Job, log: JobLog, metadata: JobMetadata, given: Mapping[str, datetime] | None = None) -> None:
    """Settle where inputs begin that others write, if the job is new to them; let ``job`` take over what is settled.

    The topics are there. Code that says another place than the settled one is told of it: the place stays. ``given``:
    topic → time, as a command line says; it comes before the code's. Where an input that is read first ends now is
    settled, too: an audit of an aligned job goes by it.
    Raises ConfigError: a newer release has pinned one.
    """
    given = given or {}
    topology = job.topology()
    for stage in job.stages:
        declared: dict[str, StartPosition] = {**stage.starts(), **given}
        for topic in topology.externals_of(stage.ordinal):
            partitions = [TopicPartition(topic, number) for number in range(log.partitions(topic) or 0)]
            key, table = _start_key(stage.name, topic), _table_key(stage.name, topic)
            new: dict[str, PinnedStart] = {}
            if topic in declared and metadata.meta_get(key) is None:
                offsets = _offsets(log, partitions, declared[topic])
                new[key] = {"format": _FORMAT, "start": _text(declared[topic]), "offsets": offsets}
                if topic in given:
                    new[key]["given"] = True
            if topic in stage.topics_read_first() and metadata.meta_get(table) is None:
                new[table] = {"format": _FORMAT, "offsets": list(full_ends(log, partitions).values())}
            if new and not _has_read(job, log, stage.ordinal, topic):
                now = log.read_metadata(job.name)  # another member may have settled it since ``metadata`` was read
                if now.meta_get(key) is None and _is_defined(now, stage.name, topic):
                    new.pop(key, None)
                for each, entry in new.items():
                    metadata.pin({each: json.dumps(entry).encode()}, None)  # what is there stays
            _tell_other_place(stage, topic, _entry(metadata, key), given.get(topic))
    _take_over(job, metadata)


def _tell_other_place(stage: StageGraph, topic: str, found: PinnedStart, given: datetime | None) -> None:
    """Say so if the command line, or the code, names another place than the one where the stage has begun to read."""
    declared = stage.starts().get(topic, "earliest")
    start = _text(declared if given is None else given)
    overruled = given is None and found.get("given") and declared == "earliest"
    if not overruled and _place(start) != _place(found["start"]):
        logger.warning(
            "stage %s has begun to read topic %s with start=%s, and %s says start=%s: it goes on from where it is. "
            "Only a job of another name begins elsewhere",
            stage.name,
            topic,
            found["start"],
            "this code" if given is None else "--from",
            start,
        )


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


def _entry(metadata: MetadataReader, key: str) -> PinnedStart:
    return _decoded(key, metadata.meta_get(key))


def _decoded(key: str, raw: bytes | None) -> PinnedStart:
    entry: PinnedStart = {"format": _FORMAT, "start": "earliest", "offsets": []}
    with reading(key):
        if raw is not None:
            entry |= json.loads(raw)
        if entry["format"] != _FORMAT:
            raise ConfigError(
                f"the entry {key!r} of the job's metadata has format {entry['format']}, this release knows "
                f"{_FORMAT}: start the job with the release that wrote it, or a later one"
            )
        _place(str(entry["start"]))
        return {**entry, "offsets": [int(offset) for offset in entry["offsets"]]}


def _place(text: str) -> int | str:
    """Return a place so that equal ones are equal: two texts may mean one time."""
    return text if text in ("earliest", "latest") else _ms(datetime.fromisoformat(text))


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _text(start: StartPosition) -> str:
    return start.isoformat() if isinstance(start, datetime) else start


def _offsets(log: JobLog, partitions: Sequence[TopicPartition], start: StartPosition) -> list[int]:
    if isinstance(start, datetime):
        return [log.offset_at(partition, _ms(start)) for partition in partitions]
    return list(stable_ends(log, partitions, logger.warning).values())


def _is_defined(metadata: MetadataReader, stage: str, topic: str) -> bool:
    """Tell whether an earlier start has written that the stage reads the topic: where it begins was settled then."""
    raw = metadata.meta_get(DEFINED)
    stages = [] if raw is None else decode_definition(raw)["stages"]
    return any(each["name"] == stage and topic in each["inputs"] for each in stages)


def _has_read(job: Job, log: JobLog, stage: int, topic: str) -> bool:
    """Tell whether a task of the stage has committed a position in the topic: it has begun with the first record."""
    topology = job.topology()
    tasks = (wire(topology, stage, number) for number in range(topology.stages[stage].partitions))
    for changelog, bounds in ends_of(log, (task.changelog for task in tasks)):
        last = last_commit(log, changelog, bounds)
        if last is not None and any(entry.topic == topic for entry in last.commit.external):
            return True
    return False
