"""The metadata entries of a job about its inputs' partitioners and its last rescale."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.core.changelog.damage import entry as reading
from grete.core.graph.partitioners import Partitioner
from grete.errors import ConfigError
from grete.ports import JobMetadata, MetadataReader
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import crc32_partition_of, partition_of

Placement = Callable[[bytes, int], int]  # key, partitions → partition
Places = Mapping[int, Placement]  # by stage

RESCALED = "rescaled"  # the entry of how many partitions a job got, and where its inputs ended then
_FORMAT = 1  # of a stored entry: a reader refuses another one


class Rescaled(NamedTuple):
    """The last rescale: from the offsets ``ends`` on (others: 0) records are where their keys belong now."""

    before: int | None  # partitions until then, None: of an older release, which did not note it
    ends: dict[TopicPartition, int]


def rescaled(metadata: MetadataReader, job: Job, stage: StageGraph) -> Rescaled | None:
    """Return the rescale, of the job or of the stage alone, that gave a stage its partitions; None: there was none."""
    alone = _rescale(metadata, f"{RESCALED} {stage.name}", stage.partitions)
    whole = _rescale(metadata, RESCALED, stage.partitions)
    if alone is not None or whole is None:
        return alone
    topics = job.topology().externals_of(stage.ordinal)
    return whole if stage.follows_job or any(partition.topic in topics for partition in whole.ends) else None


def _rescale(metadata: MetadataReader, key: str, partitions: int) -> Rescaled | None:
    raw = metadata.meta_get(key)
    with reading(key):
        entry = {} if raw is None else json.loads(raw)
        if entry.get("partitions") != partitions:
            return None  # of a rescale that came to nothing
        ends = {TopicPartition(topic, number): end for topic, number, end in entry["ends"]}
        return Rescaled(entry.get("before"), ends)


def counts_of_rescale(metadata: MetadataReader, job: Job) -> set[int]:
    """Return the numbers of partitions between which the last rescales went, of the job or of a stage alone.

    If such a process has died, topics may have one of them, and the job's code another.
    """
    counts = set[int]()
    for key in (RESCALED, *(f"{RESCALED} {stage.name}" for stage in job.stages)):
        raw = metadata.meta_get(key)
        with reading(key):
            entry = {} if raw is None else json.loads(raw)
            counts |= {count for count in (entry.get("partitions"), entry.get("before")) if count is not None}
    return counts


def rescale_entry(
    partitions: int, before: int, ends: Mapping[TopicPartition, int], stage: str | None = None
) -> dict[str, bytes]:
    """Return the entry that ``rescaled`` reads; ``stage``: the one that was rescaled alone."""
    entry = {"partitions": partitions, "before": before, "ends": [[*partition, end] for partition, end in ends.items()]}
    return {RESCALED if stage is None else f"{RESCALED} {stage}": json.dumps(entry).encode()}


def pinned(metadata: MetadataReader, topics: Iterable[str]) -> dict[str, Partitioner]:
    """Return topic → partitioner of the inputs that have one pinned. Raises ConfigError: by a newer release."""
    found = {topic: raw for topic in topics if (raw := metadata.meta_get(_key(topic))) is not None}
    return {topic: _decoded(topic, raw) for topic, raw in found.items()}


def pin(metadata: JobMetadata, topic: str, partitioner: Partitioner) -> Partitioner:
    """Pin the partitioner of an input unless one is pinned; return the one that is."""
    if not pinned(metadata, [topic]):
        entry = {"format": _FORMAT, "partitioner": partitioner.value}
        metadata.pin({_key(topic): json.dumps(entry).encode()}, None)
    return pinned(metadata, [topic])[topic]


def pin_like(metadata: MetadataReader, job: Job, target_metadata: JobMetadata, target: Job) -> None:
    """Pin for a second job, of the same stages, what is pinned for the first: its state is placed by it."""
    for stage, other in zip(job.stages, target.stages, strict=False):
        topics, others = (each.topology().keyed_externals_of(stage.ordinal) for each in (job, target))
        known = pinned(metadata, topics)
        for topic, name in zip(topics, others, strict=False):
            if topic in known and has_state(other):
                pin(target_metadata, name, known[topic])


def placed_by(metadata: MetadataReader, job: Job) -> Places:
    """Return stage → where the keys of its state belong: as those of its inputs, by murmur2 if none is pinned.

    Raises ConfigError if only the producer knows where a key belongs.
    """
    found: dict[int, Placement] = {}
    for stage in job.stages:
        found[stage.ordinal] = partition_of
        partitioners = pinned(metadata, job.topology().keyed_externals_of(stage.ordinal)) if has_state(stage) else {}
        for topic, partitioner in partitioners.items():
            if partitioner is Partitioner.OWN:
                raise ConfigError(
                    f"stage {stage.name}: the records of topic {topic} are partitioned by neither murmur2 nor CRC32, "
                    "so only their producer knows to which partition a key goes: run the history of the job through "
                    "a job with the new number of partitions instead: grete backfill",
                    stage=stage.name,
                    topic=topic,
                )
            if partitioner is Partitioner.CRC32:
                found[stage.ordinal] = crc32_partition_of
    return found


def has_state(stage: StageGraph) -> bool:
    """Tell whether the tasks of a stage keep anything by key: only then does it matter where a key is."""
    return bool(stage.all_stores() or stage.timers)


def _key(topic: str) -> str:
    return f"partitioner {topic}"


def _decoded(topic: str, raw: bytes) -> Partitioner:
    try:
        entry = json.loads(raw)
        if entry["format"] == _FORMAT:
            return Partitioner(entry["partitioner"])
    except (ValueError, KeyError, TypeError):
        pass
    raise ConfigError(
        f"the job's metadata says of topic {topic} what this release cannot read: {raw[:100]!r}: "
        "run the job with the release that wrote it, or a later one",
        topic=topic,
    )
