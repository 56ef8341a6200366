"""The arguments of an input that only a topic from outside may have: a stream between stages refuses them."""

from grete.api.jobs.graph import StageGraph
from grete.errors import GraphError


def refuse_outside_arguments(consumer: StageGraph, topic: str, producer: str) -> None:
    """Raise GraphError if an input has such an argument. ``producer``: the stage that writes its topic."""
    if topic in consumer.seen:
        raise GraphError(
            f"stage {consumer.name!r} drops duplicates of topic {topic!r}, which stage {producer!r} writes: between "
            "stages each record comes once. Leave deduplicate= out, or drop them where the records enter the job",
            stage=consumer.name,
        )
    if topic in consumer.topics_read_first():
        raise GraphError(
            f"stage {consumer.name!r} reads topic {topic!r} first (bootstrap=True), and stage {producer!r} of this job "
            "writes it: a stream between stages has no end while the job runs. Leave bootstrap= out, or let a job of "
            f"its own write {topic!r}",
            stage=consumer.name,
        )
    if topic in consumer.priorities():
        raise GraphError(
            f"stage {consumer.name!r} reads topic {topic!r} with priority=, and stage {producer!r} of this job writes "
            "it: a checkpoint needs the records of all streams between stages, so none of them may wait. Leave it out, "
            "and give priority= to the inputs where the records enter the job",
            stage=consumer.name,
        )
    if (argument := _time_argument(consumer, topic)) is not None:
        raise GraphError(
            f"stage {consumer.name!r} reads topic {topic!r} with {argument}=, and stage {producer!r} of this job "
            f"writes it: event time comes with the stream. Leave it out, and declare {argument}= where the records "
            "enter the job",
            stage=consumer.name,
        )
    if topic in consumer.starts():
        raise GraphError(
            f"stage {consumer.name!r} has start= for topic {topic!r}, which stage {producer!r} writes: between stages "
            "every record is read. Leave start= out, or give it to the inputs where the records enter the job",
            stage=consumer.name,
        )


def _time_argument(stage: StageGraph, topic: str) -> str | None:
    """Return the name of an argument by which the stage tells time otherwise in the topic; None: there is none."""
    declared = next(each for each in stage.inputs.values() if each.topic.name == topic)
    if declared.time != "record":
        return "time"
    return "out_of_order_ms" if declared.out_of_order_ms else None if declared.idle_ms is None else "idle_ms"
