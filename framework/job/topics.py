"""The topics of a job: creating the missing ones, checking the others."""

from collections.abc import Collection

from grete.api.jobs.job import Job
from grete.errors import ConfigError
from grete.job.key_metadata import counts_of_rescale
from grete.logs.topic_identity import more_partitions
from grete.ports import Log, MetadataReader


def create_topics(job: Job, log: Log, fed: Collection[str] | None = None) -> None:
    """Create every missing topic of the job (K1), of its external inputs those that are ``fed`` here; None: all.

    Raises ConfigError, before it creates any, if one of the others is missing, or if a topic does not fit.
    """
    for topic, partitions, plain in missing_topics(job, log, fed):
        log.create_topic(topic, partitions, plain=plain)


def missing_topics(
    job: Job, log: Log, fed: Collection[str] | None = None, *, metadata: MetadataReader | None = None
) -> list[tuple[str, int, bool]]:
    """Return (topic, partitions, whether it is plain) of what ``create_topics`` would create; write nothing.

    With ``metadata`` topics fit, too, that a rescale left whose process died: before it counted, those of the job have
    more partitions than the code says; afterwards those from outside have fewer, and are returned, to get more. Raises
    ConfigError if an external input that is not ``fed`` here is missing, or a topic does not fit: it has another number
    of partitions, or settings that would lose data.
    """
    topology = job.topology()
    if fed is not None:
        _check_counts(job, log)
    wanted: list[tuple[str, int, bool]] = []
    inputs: set[str] = set()
    rescaled = set[int]() if metadata is None else counts_of_rescale(metadata, job)
    for stage in topology.stages:
        for topic in topology.externals_of(stage.ordinal):
            found, needed = log.partitions(topic), job.count_of(topic)
            if topic in topology.broadcast.get(stage.ordinal, ()):
                needed = found or needed  # as many as it has: each task reads all of them
            if fed is not None:
                ran = log.partitions(topology.changelog(stage.ordinal)) is not None
                _check_external(job, stage.ordinal, topic, needed, found, fed=topic in fed, ran=ran)
            wanted.append((topic, needed, True))
            inputs.add(topic)
    wanted += [
        (topology.changelog(stage.ordinal), stage.partitions, False) for stage in topology.stages if stage.partitions
    ]
    wanted += [(stream.topic, stream.partitions, False) for stream in topology.streams]
    for topic in job.external_sinks():
        if fed is None or log.partitions(topic) is None:  # else it is somebody's, with as many partitions as they like
            wanted.append((topic, job.stages[0].pinned_counts.get(topic, job.count_of(topic)), True))
    missing = []
    for topic, partitions, plain in dict.fromkeys(wanted):
        found = log.partitions(topic)
        to_grow = fed is None and plain and found in rescaled and partitions in rescaled and found < partitions
        if found is None or to_grow:
            missing.append((topic, partitions, plain))
        elif found <= partitions or found not in rescaled or topic in inputs:
            log.create_topic(topic, partitions, plain=plain)  # it is there, so this only looks whether it fits
    return missing


def _check_counts(job: Job, log: Log) -> None:
    """Raise ConfigError if two inputs of a stage have different numbers of partitions: no number would suit it.

    A broadcast input may have any number, and one with a number of its own that one.
    """
    for stage in job.stages:
        inputs = {*job.topology().keyed_externals_of(stage.ordinal)} - job.topology().counts.keys()
        found = {topic: count for topic in sorted(inputs) if (count := log.partitions(topic)) is not None}
        if len(set(found.values())) > 1:
            (fewest, low), (most, high) = (pick(found.items(), key=lambda item: item[1]) for pick in (min, max))
            raise ConfigError(
                f"stage {stage.name!r} of job {job.name!r} reads {fewest}, which has {low} partitions, and {most}, "
                f"which has {high}: equal keys of both must have equal partition numbers. If {fewest} is small, let "
                f"each task read all of it: Input(…, broadcast=True). Else let a stage of its own read {fewest} and "
                f"send each record on to this one: class …(Task): partitions = {low}",
                stage=stage.name,
                topic=fewest,
            )


def _check_external(
    job: Job, ordinal: int, topic: str, needed: int, found: int | None, *, fed: bool, ran: bool
) -> None:
    if found is None and not fed:
        raise ConfigError(
            f"there is no topic {topic}, which job {job.name!r} reads: check its name, or create it: "
            f"kafka-topics.sh --create --topic {topic} --partitions {needed}",
            topic=topic,
        )
    stage = job.stages[ordinal]
    if found is not None and found != needed and topic in job.topology().counts:
        raise ConfigError(
            f"topic {topic} has {found} partitions, and its declaration in job {job.name!r} says {needed}: write "
            f"Topic(…, partitions={found}), a multiple of the {stage.partitions} tasks of stage {stage.name!r}",
            stage=stage.name,
            topic=topic,
        )
    if found is not None and found > needed and ran:
        raise ConfigError(more_partitions(topic, found, needed), topic=topic)
    if found is not None and found != needed:
        ways = [stage.declared_with(found)]
        if found % needed == 0:
            ways.append(f"for {needed} tasks that read several partitions each, Topic(…, partitions={found})")
        if stage.follows_job and len(job.stages) > 1:
            ways.append(f"for this stage alone, {stage.declared_with(found, alone=True)}")
        raise ConfigError(
            f"topic {topic} has {found} partitions, and job {job.name!r} has {needed} where stage {stage.name!r} reads "
            f"it: write {'; or, '.join(ways)}",
            stage=stage.name,
            topic=topic,
        )
