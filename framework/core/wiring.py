"""How one task is wired into the job: its channels in, its partitions out, its changelog. Derived from the topology."""

from dataclasses import dataclass

from framework.core.topology import Topology
from protocol.ids import TopicPartition, producer_id


@dataclass(frozen=True, slots=True)
class TaskWiring:
    """All that TaskCore needs to know of the graph. ``channels`` is the barrier's set: producer × partition (A6)."""

    name: str
    producer: int
    channels: tuple[tuple[int, TopicPartition], ...]
    external: tuple[TopicPartition, ...]
    outputs: tuple[TopicPartition, ...]
    changelog: TopicPartition
    fingerprint: int
    decider: TopicPartition  # the changelog of task (0, 0): it holds the verdicts of runs (1.8)

    @property
    def is_source(self) -> bool:
        """Whether the task has no internal input (design 1.1)."""
        return not self.channels


def wire(topology: Topology, stage: int, partition: int) -> TaskWiring:
    """Return the wiring of task (stage, partition)."""
    return TaskWiring(
        name=f"{topology.stages[stage].name}-{partition}",
        producer=producer_id(stage, partition),
        channels=tuple(
            (producer_id(stream.producer, p), TopicPartition(stream.topic, partition))
            for stream in topology.streams_into(stage)
            for p in range(topology.stages[stream.producer].partitions)
        ),
        external=tuple(TopicPartition(topic, partition) for topic in topology.externals_of(stage)),
        outputs=tuple(
            TopicPartition(stream.topic, p)
            for stream in topology.streams_out_of(stage)
            for p in range(stream.partitions)
        ),
        changelog=TopicPartition(topology.changelog(stage), partition),
        fingerprint=topology.fingerprint(),
        decider=TopicPartition(topology.changelog(0), 0),
    )
