"""The arguments of an input that only a topic from outside may have: a stream between stages refuses them."""

from grete.api.jobs.graph import StageGraph
from grete.errors import GraphError

_WHY = {
    "partitions": "a stream between stages has a partition for each task that reads it",
    "deduplicate": "between stages each record comes once",
    "bootstrap": "a stream between stages has no end while the job runs",
    "priority": "a checkpoint needs the records of all streams between stages, so none of them may wait",
    "start": "between stages every record is read",
    **dict.fromkeys(("time", "out_of_order_ms", "idle_ms"), "event time comes with the stream"),
}


def refuse_outside_arguments(consumer: StageGraph, topic: str, producer: str) -> None:
    """Raise GraphError if an input has such an argument. ``producer``: the stage that writes its topic."""
    found = next(each for each in consumer.inputs.values() if each.topic.name == topic)
    given = {argument: getattr(found, argument) for argument in _WHY if argument != "partitions"}
    given |= {"partitions": None if found.topic.public else found.topic.partitions}
    for argument, value in given.items():
        if value not in (None, 0, False, "record", "earliest"):
            raise GraphError(
                f"stage {consumer.name!r} reads topic {topic!r} with {argument}=, and stage {producer!r} of this job "
                f"writes it: {_WHY[argument]}. Leave {argument}= out, or give it to the inputs where the records enter "
                f"the job, or let a job of its own write {topic!r}",
                stage=consumer.name,
            )
