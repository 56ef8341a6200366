"""Checks of topics outside: partitions beside the tasks that read them (A2f), arguments for them alone, patterns."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from grete.api.jobs.graph import StageGraph
from grete.api.topics.topic import TopicPattern
from grete.core.graph.topology import Topology
from grete.errors import GraphError


def declared_counts(stages: Sequence[StageGraph]) -> dict[str, int]:
    """Return topic → partitions of those whose declaration says how many they have."""
    topics = (t for stage in stages for t in (*stage.topics_read(), *stage.topics_written(), *stage.dead_letters()))
    return {topic.name: topic.partitions for topic in topics if topic.partitions is not None}


def check_counts(job: str, stages: Sequence[StageGraph], topology: Topology) -> None:
    """Refuse a topic from outside whose keys would not each have one task in every stage that reads it by partition.

    Raises GraphError: its number is no multiple of a stage's; or it has none, and stages of different numbers read it.
    """
    readers: dict[str, StageGraph] = {}
    for stage in stages:
        for topic in topology.keyed_externals_of(stage.ordinal):
            count, other = topology.stages[stage.ordinal].counts.get(topic), readers.setdefault(topic, stage)
            if count is not None and count % stage.partitions:
                raise GraphError(
                    f"job {job!r}: topic {topic!r} has {count} partitions (Topic(…, partitions={count})), and stage "
                    f"{stage.name!r}, which reads it, has {stage.partitions}: each task reads equally many of them, so "
                    f"that a key has one task whatever their number: {_ways(stage, count)}",
                    stage=stage.name,
                    topic=topic,
                )
            if count is None and other.partitions != stage.partitions:
                raise GraphError(
                    f"job {job!r}: stage {other.name!r} has {other.partitions} partitions and stage "
                    f"{stage.name!r} has {stage.partitions}, and both read topic {topic!r} from outside, which has "
                    "one number of them: say which, a multiple of both: Topic(…, partitions=…); or let one of them "
                    "read it and send each record on to the other; or, if it is small, read all of it in each task: "
                    "Input(…, broadcast=True)",
                    stage=stage.name,
                    topic=topic,
                )


def _ways(stage: StageGraph, count: int) -> str:
    """Return the declarations with the nearest numbers that divide the topic's."""
    divisors = sorted((n for n in range(1, count + 1) if not count % n), key=lambda n: abs(n - stage.partitions))
    return f"write {' or '.join(stage.declared_with(each) for each in divisors[:2])}"


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


def tasks_writing(stages: Sequence[StageGraph], pattern: str) -> int:
    """Return the number of tasks of the widest stage that writes topics of a pattern."""
    return max(stage.partitions for stage in stages for each in stage.patterns() if each.pattern == pattern)


def check_patterns(job: str, stages: Sequence[StageGraph], topology: Topology, outside: Iterable[str]) -> None:
    """Refuse patterns by which a record could name a topic that is there for something else. Raises GraphError.

    ``outside``: the topics outside of the job that it writes.
    """
    read = [topic for topics in topology.external_inputs.values() for topic in topics]
    found: dict[str, TopicPattern[Any, Any]] = {}
    for stage, pattern in ((each, pattern) for each in stages for pattern in each.patterns()):
        where = f"stage {stage.name!r} writes TopicPattern({pattern.pattern!r})"
        if stage.mode == "deterministic":
            raise GraphError(
                f"{where} and is deterministic: such a stage keeps for each topic what it has sent, so its topics are "
                "declared. Let an aligned stage behind it write them",
                stage=stage.name,
            )
        known = found.setdefault(pattern.pattern, pattern)
        if known != pattern or known.by is not pattern.by:
            raise GraphError(f"{where} in two declarations that differ: declare it once, share it", stage=stage.name)
        named = next((topic for topic in sorted({*read, *outside}) if pattern.makes(topic)), None)
        if named is not None or pattern.ends[0].startswith(f"{job}."):
            what = (
                f"topics of job {job!r} itself" if named is None else f"{named}, which the job has for something else"
            )
            raise GraphError(f"{where}, by which a record could name {what}: begin it otherwise", stage=stage.name)
    for one, other in combinations(found.values(), 2):
        (begin, end), (begin2, end2) = one.ends, other.ends
        if (begin.startswith(begin2) or begin2.startswith(begin)) and (end.endswith(end2) or end2.endswith(end)):
            raise GraphError(
                f"TopicPattern({one.pattern!r}) and TopicPattern({other.pattern!r}) could name one topic: begin them "
                "with different words"
            )
