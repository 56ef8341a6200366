"""The names that the log has for what a job reads and writes: each topic needs one of its own that Kafka takes."""

from collections.abc import Iterable

from grete.api.jobs.graph import refuse_clashes
from grete.core.graph.topology import Topology
from grete.errors import GraphError

TOPIC_CHARS_MAX = 249  # Kafka's limit on a topic name


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
