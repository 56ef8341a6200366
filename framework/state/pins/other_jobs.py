"""Whether another job of the log has the topics that this one is about to take: dots can make two names one.

Job ``a.b`` with stage ``c`` and job ``a`` with stage ``b.c`` have one changelog, ``a.b.c.changelog``.
"""

from collections.abc import Iterable

from grete.api.jobs.job import Job
from grete.core.graph.topology import Topology
from grete.errors import ConfigError
from grete.ports import JobLogReader
from grete.state.pins.graph_pinning import GRAPH, decode_graph, pinned_graph


def refuse_shared_topics(job: Job, log: JobLogReader) -> None:
    """Raise ConfigError if a topic that is new to the job, and there, is another job's. The log has several jobs."""
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
