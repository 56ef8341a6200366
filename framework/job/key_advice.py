"""Messages about records in the wrong partition: examples, likely producers, and the setting to change."""

from collections.abc import Mapping

from grete.core.graph.partitioners import KeyAt, Partitioner, Recognized
from grete.protocol.ids import TopicPartition
from grete.quoting import key_text

_NAMES = {
    Partitioner.MURMUR2: "murmur2",
    Partitioner.CRC32: "CRC32 (the default of librdkafka, so of confluent-kafka)",
    Partitioner.OWN: "a partitioner of the producer's own",
}
_SET = {
    Partitioner.MURMUR2: "partitioner=murmur2_random in producers of librdkafka (confluent-kafka in Python, Go, .NET); "
    "Java producers place by it already, without partitioner.class",
    Partitioner.CRC32: "partitioner=consistent_random in producers of librdkafka, which is their default; in Java a "
    "partitioner.class that places by crc32(key) % partitions",
}
_AND_THEN = (
    "What is in the topic already stays where it is: write it again, into another topic for a job of another name; or "
    "let a first stage without stores send each record on by its key; or set misplaced_keys = warn, and the job goes "
    "on with split state"
)
PART = "the part of its key that places it,"
_KEY_BYTES_SHOWN = 60  # enough to find the key in a topic


def misplaced(
    partition: TopicPartition,
    partitions: int,
    partitioner: Partitioner,
    at: KeyAt,
    *,
    before: int | None,
    is_part: bool = False,
) -> str:
    """Return the advice about a key that ``partitioner`` (not OWN) would have put in another partition.

    ``before``: how many partitions there were before a rescale, if there was one. ``is_part``: it is the part of a key
    that places the record.
    """
    key = f"{PART} {_shown(at.key)}" if is_part else f"key {_shown(at.key)}"
    return (
        f"{partition} offset {at.offset:,}: {key} belongs in partition "
        f"{partitioner.place(at.key, partitions)}: topic {partition.topic} is partitioned by {_NAMES[partitioner]}, "
        "and state is kept per partition: two tasks would hold this key. "
        f"{_whose(partition, partitions, partitioner, at.key, before)}. {_AND_THEN}"
    )


def _whose(partition: TopicPartition, partitions: int, partitioner: Partitioner, key: bytes, before: int | None) -> str:
    """Return the programs that may have put the key there, and the remedy."""
    if before is not None and partitioner.place(key, before) == partition.partition:
        return (
            f"That is its partition of {before}, as many as there were before the rescale to {partitions}: a producer "
            "with old metadata writes there: restart it, or let it ask more often (metadata.max.age.ms, in librdkafka "
            "topic.metadata.refresh.interval.ms)"
        )
    other = Partitioner.CRC32 if partitioner is Partitioner.MURMUR2 else Partitioner.MURMUR2
    if other.place(key, partitions) == partition.partition:
        return f"A producer that partitions by {_NAMES[other]} writes there: set {_SET[partitioner]}"
    return (
        "A producer with another partitioner, or with metadata of another number of partitions, writes there: set "
        f"{_SET[partitioner]}; or restart it"
    )


def two_producers(job: str, partition: TopicPartition, found: Recognized) -> str:
    """Return the advice about an input with keys placed by murmur2 and keys placed by CRC32."""
    shown = ", ".join(
        f"{_shown(at.key)} at offset {at.offset:,} by {kind.value}" for kind, at in found.examples.items()
    )
    return (
        f"{partition}: of its keys some are placed by murmur2 and some by CRC32 ({shown}): two producers of job "
        f"{job!r} have different partitioners, so a key is in two partitions, and its state in two tasks. Set in both "
        f"{_SET[Partitioner.MURMUR2]}. {_AND_THEN}"
    )


def placed_otherwise(partition: TopicPartition, partitions: int, at: KeyAt) -> str:
    """Return the advice about an input whose keys a part should place, and does not: ``at`` is one, with that part."""
    places = ", ".join(
        f"{kind.place(at.key, partitions)} by {_NAMES[kind]}" for kind in (Partitioner.MURMUR2, Partitioner.CRC32)
    )
    return (
        f"{partition} offset {at.offset:,}: {PART} {_shown(at.key)} belongs in partition {places}: its producer places "
        f"by something else, perhaps by the whole key, and two tasks would hold what belongs together. Let it place by "
        f"murmur2 of that part; or declare the topic with the key as a whole, such as json, and send each record on by "
        "Key in a first stage (repartition)"
    )


def differing_inputs(stage: str, known: Mapping[str, Partitioner]) -> str:
    """Return the advice about a stage with state that reads topics with different partitioners."""
    shown = ", ".join(f"{topic} by {_NAMES[partitioner]}" for topic, partitioner in sorted(known.items()))
    others = ", ".join(sorted(topic for topic, each in known.items() if each is not Partitioner.MURMUR2))
    return (
        f"stage {stage}: its inputs are partitioned differently: {shown}. Records of one key come to different tasks, "
        f"and state is kept per partition. For {others} set {_SET[Partitioner.MURMUR2]}. {_AND_THEN}"
    )


def _shown(key: bytes) -> str:
    return key_text(key[:_KEY_BYTES_SHOWN]) + "…" * (len(key) > _KEY_BYTES_SHOWN)
