"""The place where files end and the log begins: its first record, and whether its keys are those of the files.

A producer chooses the partition of a live record by the bytes of its key. If the files have other bytes for it, or come
before a topic that was partitioned otherwise, a key has its history in one task and goes live in another.
"""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import NamedTuple

from grete.api.jobs.job import Job
from grete.api.serdes.key import PartitionBy, partition_by
from grete.api.serdes.serde import Serde
from grete.errors import ConfigError
from grete.logs.partition_reader import rows
from grete.ports import LogReader, LogRow
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.ranges import Ends, InputRanges

_RECORDS_MAX = 100  # of a partition, whose keys are looked at
_RECORDS_OF_TOPIC_MAX = 2_000  # each executor gets their keys with its plan


class Seam(NamedTuple):
    """The log behind the files: its first record, None if there is none, and the keys of the first ones.

    ``keys``: with the bytes that the topic's serde makes of the same key, if these are others.
    """

    first: LogRow | None
    keys: Mapping[bytes, bytes | None]

    def known(self, found: Collection[bytes]) -> int:
        """Return the number of its keys that are in the files, which have ``found`` of those they were asked for."""
        return sum(key in found for key in self.keys)


Seams = Mapping[TopicPartition, Seam]  # of partitions whose history is in files


def seams_of(log: LogReader, job: Job, covered: InputRanges, ends: Ends) -> Seams:
    """Read the first records that the log has behind the files."""
    serdes = {each.topic.name: each.topic.key for stage in job.stages for each in stage.inputs.values()}
    found: dict[TopicPartition, Seam] = {}
    for (_, partition), begin in covered.begins.items():
        topic = partition.topic
        if topic not in ends or partition in found:
            continue
        start, end = log.bounds(partition)
        behind = (ends[topic] or {}).get(partition.partition, 0)
        count = max(1, min(_RECORDS_MAX, _RECORDS_OF_TOPIC_MAX // (log.partitions(topic) or 1)))
        first = list(islice(rows(log, partition, max(start, begin, behind), end), count))
        keys = {row.key: _other_bytes(serdes.get(topic), row.key) for row in first if row.key is not None}
        found[partition] = Seam(first[0] if first else None, keys)
    return found


def sought(seams: Seams) -> dict[str, frozenset[bytes]]:
    """Return topic → the keys that tasks look for in the files."""
    found: dict[str, set[bytes]] = {}
    for partition, seam in seams.items():
        found.setdefault(partition.topic, set()).update(seam.keys, filter(None, seam.keys.values()))
    return {topic: frozenset(keys) for topic, keys in found.items()}


def check_keys(job: Job, ends: Ends, seams: Seams, found: Mapping[str, Collection[bytes]]) -> None:
    """Raise ConfigError if keys of the log are in the files by other bytes, or where their partition is another one.

    ``found``: topic → the keys that the tasks were asked for and have seen.
    """
    whole = {topic for counts in job.topology().broadcast.values() for topic in counts}
    places = {each.topic.name: partition_by(each.topic.key) for stage in job.stages for each in stage.inputs.values()}
    for partition, seam in seams.items():
        topic = partition.topic
        for key, other in seam.keys.items():
            if other is not None and key not in found.get(topic, ()) and other in found.get(topic, ()):
                raise ConfigError(
                    f"{partition}: the log has the key {key!r}, and the files have {other!r}, which the topic's serde "
                    "reads as the same key: its history would be another entry, or in another task. Give the files "
                    "the bytes that the producers write; if it is meant: --accept keys",
                    partition=partition,
                )
        elsewhere = (
            []
            if topic in whole or ends[topic] is not None
            else _elsewhere(places[topic], partition, seam, job.count_of(topic))
        )
        if elsewhere:
            raise ConfigError(
                f"{partition}: {len(elsewhere):,} of the first {len(seam.keys):,} keys of the log, such as "
                f"{elsewhere[0]!r}, belong to another partition by murmur2, as which files without offsets are "
                "partitioned: their history would be in another task. Let the producers write with murmur2, or give "
                "the files the columns partition and offset; if it is meant: --accept keys",
                partition=partition,
            )


def _elsewhere(place: PartitionBy, partition: TopicPartition, seam: Seam, count: int) -> list[bytes]:
    return [key for key in seam.keys if place(key, count) != partition.partition]


def _other_bytes(serde: Serde[object] | None, key: bytes) -> bytes | None:
    """Return the bytes that the serde makes of a key; None if they are the same, or it cannot read them."""
    try:
        made = None if serde is None else serde.encode(serde.decode(key))
    except Exception:  # noqa: BLE001  # a serde may raise anything: such a record is refused where it is read
        return None
    return None if made == key else made
