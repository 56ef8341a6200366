"""Pins which topics a job first ran with: a topic that was deleted and created again has other records."""

from collections.abc import Sequence

from grete.errors import ConfigError, Halted
from grete.halts import HaltCode
from grete.ports import JobLog, JobMetadata, MetadataReader
from grete.protocol.ids import PARTITIONS_MAX, TopicPartition, check_name

CREATED_AGAIN = (
    "offsets in it begin from 0, so the job cannot tell which records it has read. Bring the topic back, or "
    "begin from the start yourself: give the job another name, or delete all of its topics"
)

OUTPUT_GONE = (
    "what it held is gone, and the job does not make it again. Bring the topic back; or, if that was meant, start the "
    "job again: it goes on behind what was there"
)
METADATA_GONE = (
    "it held what the job's state is compared with at each start. Start the job again: it pins what the code says then"
)


def check_topic(topic: str, partitions: int) -> None:
    """Raise ConfigError for a name or a number of partitions that no topic may have."""
    try:
        check_name("topic", topic)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise ConfigError(f"topic {topic}: {partitions} partitions: need 1 to {PARTITIONS_MAX}", topic=topic)


def check_count(topic: str, found: int, partitions: int, way: str = "use that number or another topic") -> None:
    """Raise ConfigError if a topic has ``found`` partitions, not ``partitions``. ``way``: the remedy."""
    if found != partitions:
        raise ConfigError(f"topic {topic} has {found} partitions, not {partitions}: {way}", topic=topic)


def no_partition(asked: TopicPartition, count: int | None) -> ConfigError:
    """Return the error for a partition that is not there, of a topic that has ``count``; None: no such topic."""
    if count is None:
        text = f"there is no partition {asked}: create the topic first"
    else:
        text = (
            f"there is no partition {asked}: topic {asked.topic} has {count}. The code asks for more than the log has: "
            "run it with as many partitions as the job was started with"
        )
    return ConfigError(text, partition=asked)


def more_partitions(topic: str, found: int, before: int) -> str:
    """Return the remedy for an input that has got more partitions than a job has."""
    return (
        f"topic {topic} has {found} partitions, and the job has run with {before}: no task reads the new ones, and "
        f"keys go elsewhere. Stop its producers, and: grete rescale JOB --partitions={found}, once all records are "
        f"processed; or, if {found} is a multiple of the tasks that read it, keep these: Topic(…, partitions={found}); "
        f"or write to a topic of another name, with {before} partitions. If each task reads all of it "
        "(broadcast=True), start the job again, and it reads the new ones, too"
    )


def pin_topics(log: JobLog, metadata: JobMetadata, topics: Sequence[str]) -> None:
    """Pin which topics these are at the first run. Raises Halted if one of them was deleted and created again since."""
    fresh = check_topics(log, metadata, topics)
    if fresh:
        metadata.produce_with_meta([], fresh)


def created_again(metadata: MetadataReader, topic: str, identity: str) -> bool:
    """Whether a topic has another id than when the job first ran; "": the broker is older than ids."""
    pinned = metadata.meta_get(f"topic {topic}")
    return bool(identity) and pinned is not None and pinned != identity.encode()


def check_topics(log: JobLog, metadata: MetadataReader, topics: Sequence[str]) -> dict[str, bytes | None]:
    """Return the pins of these topics, which are there; write nothing.

    Raises Halted if one of them was deleted and created again since the first run.
    """
    fresh: dict[str, bytes | None] = {}
    for topic, identity in log.identities(topics).items():
        pinned = metadata.meta_get(f"topic {topic}")
        if not identity:
            continue
        if pinned is None:
            fresh[f"topic {topic}"] = identity.encode()
        elif created_again(metadata, topic, identity):
            raise Halted(
                f"topic {topic} was deleted and created again since the job first ran: {CREATED_AGAIN}",
                topic=topic,
                code=HaltCode.TOPIC_REPLACED,
            )
    return fresh
