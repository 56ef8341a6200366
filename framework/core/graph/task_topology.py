"""Wiring of one task: its input channels, output partitions and changelog. Derived from the topology."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.core.graph.topology import Topology
from grete.protocol.ids import TopicPartition, producer_id


@dataclass(frozen=True, slots=True)
class TaskWiring:
    """All that a core needs to know of the graph. ``channels``: producer × partition, the alignment's set (A6).

    Of an aligned task, ``logical`` are the producers in deterministic mode: they send no markers, and what they send is
    never rolled back, so their channels are none of the alignment's (A2b). ``is_source``: the task waits for no task's
    markers, so it closes checkpoints by its own clock (A1, 1.8). ``keeps_time``: event time is part of the task's
    state; ``timed_outputs``: where it must be told, because the consumer, or a stage behind it, goes by event time (E1,
    E2); ``merged_outputs``: whose consumer is deterministic, and merges its channels by logical time (D1).
    ``fingerprint`` goes into all that the task sends, and ``fingerprints`` are those that it takes from others: of the
    graphs that the job has had, each an extension of the one before it (1.2).
    """

    stage: str
    producer: int
    channels: tuple[tuple[int, TopicPartition], ...]
    external: tuple[TopicPartition, ...]
    outputs: tuple[TopicPartition, ...]
    changelog: TopicPartition
    fingerprint: int
    outcome_changelog: TopicPartition  # the changelog of task (0, 0): it holds the outcomes of bulk writes (1.8)
    logical: frozenset[int] = frozenset()
    deterministic: bool = False  # the mode of the task itself
    keeps_time: bool = False
    timed_outputs: tuple[TopicPartition, ...] = ()
    merged_outputs: frozenset[TopicPartition] = frozenset()
    fingerprints: frozenset[int] = frozenset()
    bootstrap: tuple[TopicPartition, ...] = ()  # of ``external``: read to their ends before all other inputs (A2c)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict, hash=False)  # of ``external``: where it begins
    tasks: int = 1  # of the stage: as many write to each partition of ``outputs``
    grouped: frozenset[str] = frozenset()  # the topics of ``external`` that it shares with other tasks (A2f)
    name: str = field(init=False)  # stage and partition
    is_source: bool = field(init=False)  # known from the others; asked for at each turn

    def __post_init__(self) -> None:
        """Work out what follows from the rest."""
        object.__setattr__(self, "fingerprints", self.fingerprints | {self.fingerprint})
        object.__setattr__(self, "name", f"{self.stage}-{self.changelog.partition}")
        object.__setattr__(self, "is_source", all(producer in self.logical for producer, _ in self.channels))


def wire(topology: Topology, stage: int, partition: int) -> TaskWiring:
    """Return the wiring of task (stage, partition)."""
    deterministic = stage in topology.deterministic
    return TaskWiring(
        stage=topology.stages[stage].name,
        producer=producer_id(stage, partition),
        channels=tuple(
            (producer_id(stream.producer, p), TopicPartition(stream.topic, partition))
            for stream in topology.streams_into(stage)
            for p in range(topology.stages[stream.producer].partitions)
        ),
        external=topology.external_partitions(stage, partition),
        outputs=tuple(
            TopicPartition(stream.topic, p)
            for stream in topology.streams_out_of(stage)
            for p in range(stream.partitions)
        ),
        changelog=TopicPartition(topology.changelog(stage), partition),
        fingerprint=topology.fingerprint() if topology.first is None else topology.first,
        outcome_changelog=TopicPartition(topology.changelog(0), 0),
        logical=frozenset(
            producer_id(stream.producer, p)
            for stream in topology.streams_into(stage)
            if not deterministic and stream.producer in topology.deterministic
            for p in range(topology.stages[stream.producer].partitions)
        ),
        deterministic=deterministic,
        keeps_time=topology.keeps_time(stage),
        timed_outputs=tuple(
            TopicPartition(stream.topic, p)
            for stream in topology.streams_out_of(stage)
            if topology.keeps_time(stream.consumer)
            for p in range(stream.partitions)
        ),
        merged_outputs=frozenset(
            TopicPartition(stream.topic, p)
            for stream in topology.streams_out_of(stage)
            if stream.consumer in topology.deterministic
            for p in range(stream.partitions)
        ),
        fingerprints=topology.fingerprints() | topology.known,
        bootstrap=tuple(
            each
            for each in topology.external_partitions(stage, partition)
            if each.topic in topology.bootstrap.get(stage, ())
        ),
        starts=topology.starts.get(stage, {}),
        tasks=topology.stages[stage].partitions,
        grouped=frozenset(topology.stages[stage].counts),
    )
