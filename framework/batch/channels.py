"""The channels of a task in batch, and the order of a job's stages."""

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Topology
from grete.execution.timing.event_time import OUTSIDE
from grete.protocol.ids import TopicPartition


def channels_of(topology: Topology, stage: int, partition: int) -> dict[tuple[int, TopicPartition], int]:
    """Return (producer id, -1: none of ours; its partition) → channel, of all that a task reads.

    Those from outside are below 0. The others are numbered as a live deterministic task does it, which goes by them.
    """
    wiring = wire(topology, stage, partition)
    external = {(OUTSIDE, source): -1 - index for index, source in enumerate(wiring.external)}
    return external | {channel: index for index, channel in enumerate(sorted(wiring.channels))}


def stages_in_order(job: Job) -> list[StageGraph]:
    """Return the stages, each after all that it reads from."""
    topology, ordered = job.topology(), list[StageGraph]()
    while len(ordered) < len(job.stages):
        known = {stage.ordinal for stage in ordered}
        ordered += [
            stage
            for stage in job.stages
            if stage.ordinal not in known and all(s.producer in known for s in topology.streams_into(stage.ordinal))
        ]
    return ordered
