"""Prepares a job to run or to be read: topics, metadata, and code that fits the committed state."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from grete.api.jobs.job import Job
from grete.api.registry.schema_registry import RegistrySerde
from grete.core.graph.task_topology import TaskWiring
from grete.core.graph.topology import Topology
from grete.errors import ConfigError, TransientError
from grete.execution.build import check_stage
from grete.job.copies import note_place, refuse_copy
from grete.job.directory import JobDirectory
from grete.job.metadata import check_guarantee, guarantee_entry, has_pins
from grete.job.named_topics import check_bounds, topics_there
from grete.job.topics import missing_topics
from grete.logs.topic_identity import check_topics, pin_topics
from grete.ports import JobLog, JobLogReader, JobMetadata
from grete.settings import Settings
from grete.state.pins.graph_pinning import GRAPH, check_graph, decode_graph, graph_entry, pinned_graph
from grete.state.pins.pinning import (
    check_broadcast,
    check_definition,
    copy_pinned,
    pin_definition,
    take_state_of,
    takes_back,
)
from grete.state.pins.pins import put_in_place
from grete.state.pins.start_pinning import pin_starts
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.owners import refuse_if_owned


def prepare(
    job: Job,
    log: JobLog,
    job_directory: JobDirectory,
    settings: Settings,
    fed: Collection[str] = (),
    tasks: Sequence[TaskWiring] | None = None,
    *,
    state_of: Job | None = None,
    starts: Mapping[str, datetime] | None = None,
) -> JobMetadata:
    """Make and check what a job needs of its log, and return its metadata; ``fed``: the external inputs fed from here.

    ``tasks`` are those that will run in this process, None: all. ``state_of``: a job whose state this one is to get.
    ``starts``: topic → time, where a new job begins to read an input, whatever its code says.
    ``job`` takes over what its definition holds of ids and counts. A start that is refused writes nothing: all checks
    come first. Raises ConfigError, also if the code changes what it may not, Halted (a topic was deleted and created
    again).
    """
    found = log.read_metadata(job.name)
    check_guarantee(found, job.name, settings, job.modes)
    for graph in job.stages:
        check_stage(graph, job.topology(), settings)
    check_bounds(job, found)
    check_broadcast(job, log)
    if not job_directory.address.embedded:
        _refuse_shared_topics(job, log)  # first: what is in them is of another job
    check_graph(job, log, tasks)
    if check_definition(job, log) is None and state_of is not None:
        take_state_of(state_of, job)
    if takes_back(job, log):  # a worker of the newer code would commit under this definition
        refuse_if_owned(log, [each for each in all_wirings(job) if log.partitions(each.changelog.topic)], settings)
    if job_directory.address.embedded:
        refuse_copy(job, found, job_directory.directory)
    topology = job.topology()
    changelogs = (topology.changelog(stage.ordinal) for stage in topology.stages if stage.partitions)
    read = (topic for stage in topology.stages for topic in topology.externals_of(stage.ordinal))
    pinned = sorted({*changelogs, *read, *(stream.topic for stream in topology.streams)})
    check_topics(log, found, [topic for topic in pinned if log.partitions(topic) is not None])
    missing = missing_topics(job, log, fed if job_directory.address.on_kafka else None, metadata=found)
    stages = ((stage, job.stages[stage.ordinal].mode) for stage in topology.stages if stage.partitions)
    deterministic = [stage for stage, mode in stages if mode == "deterministic"]
    absent = {topic for topic, _, _ in missing}
    theirs = {topic: s.name for s in deterministic for topic in topology.externals_of(s.ordinal) if topic not in absent}
    for topic, reader in theirs.items():
        log.refuse_compacted(topic, reader)
    register_schemas(job)
    for topic, partitions, plain in missing:
        log.create_topic(topic, partitions, plain=plain, grow=log.partitions(topic) is not None)
    metadata = log.open_metadata(job.name)
    put_in_place(log, job.name, metadata)
    pin_topics(log, metadata, pinned)
    pin_starts(job, log, metadata, starts)  # before the definition: an input that is in there has begun
    beside = {**guarantee_entry(metadata, job.name, settings, job.modes), **graph_entry(job, metadata)}
    pin_definition(job, log, metadata, job_directory.state_directory, beside, lost=not has_pins(found))
    if job_directory.address.embedded:
        note_place(job, metadata, job_directory.directory)
    log.watch([*job.external_sinks(), *topics_there(job, log)])
    return metadata


def prepare_standby(
    job: Job, log: JobLogReader, job_directory: JobDirectory, settings: Settings, tasks: Sequence[TaskWiring]
) -> None:
    """Check that a job's code fits its state, as a start does, and write nothing to the log.

    ``job`` takes over what its definition holds. Raises ConfigError; TransientError before the first start of the job.
    """
    metadata = log.read_metadata(job.name)
    check_guarantee(metadata, job.name, settings, job.modes)
    check_graph(job, log, tasks)
    if check_definition(job, log) is None:
        raise TransientError(f"job {job.name!r} has not been started on this log yet: start its workers first")
    copy_pinned(metadata, job_directory.state_directory)


def register_schemas(job: Job) -> None:
    """Register the schemas by which a job writes, or look them up. Raises ConfigError: a registry refuses one."""
    for stage in job.stages:
        for topic in stage.topics_written():
            for serde in (topic.key, topic.value):
                if isinstance(serde, RegistrySerde):
                    serde.prepare()


def _refuse_shared_topics(job: Job, log: JobLogReader) -> None:
    """Raise ConfigError if a topic that is new to the job, and there, is another job's. The log has several jobs.

    Dots can make two names one: job ``a.b`` with stage ``c`` and job ``a`` with stage ``b.c`` have one changelog,
    ``a.b.c.changelog``.
    """
    pinned = pinned_graph(job, log)
    known = set() if pinned is None else _topics(pinned)
    there = {topic for topic in _topics(job.topology()) - known if log.partitions(topic) is not None}
    for other in sorted(_jobs_of(there) - {job.name}):
        raw = log.read_metadata(other).meta_get(GRAPH)
        shared = set() if raw is None else there & _topics(decode_graph(other, raw))
        if shared:
            raise ConfigError(
                f"job {job.name!r} would write to topic {min(shared)}, the topic of job {other!r}: the dots in their "
                "names and those of their stages make them one. Give this job, or its stage, another name, without a "
                "dot",
                topic=min(shared),
            )


def _topics(topology: Topology) -> set[str]:
    changelogs = {topology.changelog(stage.ordinal) for stage in topology.stages}
    return changelogs | {stream.topic for stream in topology.streams}


def _jobs_of(topics: Iterable[str]) -> set[str]:
    """Return the names that a job may have whose topics these are: all before one of the dots."""
    parts = [topic.split(".") for topic in topics]
    return {".".join(each[:count]) for each in parts for count in range(1, len(each))}
