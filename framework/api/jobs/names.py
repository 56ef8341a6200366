"""The names and numbers of a job's parts: each topic, directory and store needs a name that no other one has."""

from collections.abc import Callable, Iterable

from grete.core.graph.topology import Topology
from grete.errors import GraphError
from grete.protocol.ids import check_name

PARTITIONS_MAX = 1_000  # of a stage: each number is a worker process, and a partition of its streams and changelog
TOPIC_CHARS_MAX = 249  # Kafka's limit on a topic name


def checked_name(kind: str, name: str) -> str:
    """Return the name. Raises GraphError if it cannot name a topic, a directory and a column family alike."""
    try:
        return check_name(kind, name)
    except ValueError as error:
        raise GraphError(str(error)) from error


def checked_count(where: str, partitions: object) -> int:
    """Return the number of partitions. Raises GraphError unless it is one that a stage may have."""
    if type(partitions) is not int or not 1 <= partitions <= PARTITIONS_MAX:
        raise GraphError(f"{where}: partitions = {partitions!r}: need 1 to {PARTITIONS_MAX}")
    return partitions


def refuse_clashes(kind: str, names: Iterable[str], remedy: str, fold: Callable[[str], str] = str.casefold) -> None:
    """Raise GraphError if two names are equal once folded: as directories or Kafka topics they would be one."""
    seen: dict[str, str] = {}
    for name in names:
        folded = fold(name)
        if folded in seen:
            raise GraphError(f"{kind} {name!r} clashes with {seen[folded]!r}: {remedy}")
        seen[folded] = name


def check_log_names(topology: Topology, written: Iterable[str]) -> None:
    """Refuse log topics that Kafka would refuse, or that an external topic of the job already has.

    ``written``: the topics outside of the job that it writes. Raises GraphError.
    """
    internal = [
        *(stream.topic for stream in topology.streams),
        *(topology.changelog(stage.ordinal) for stage in topology.stages),
    ]
    for topic in internal:
        if len(topic) > TOPIC_CHARS_MAX:
            raise GraphError(
                f"internal topic {topic!r} has {len(topic)} characters, over {TOPIC_CHARS_MAX}: use shorter names",
                topic=topic,
            )
    external = {topic for topics in topology.external_inputs.values() for topic in topics} | {*written}
    refuse_clashes("log topic", [*sorted(external), *internal], "rename one", fold=_kafka_fold)


def _kafka_fold(topic: str) -> str:
    """Return the name as Kafka compares it: '.' and '_' are one in its metrics, so it refuses a second such topic."""
    return topic.replace(".", "_").casefold()
