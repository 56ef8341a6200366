"""The place of a task in its world, as its code knows it."""

from dataclasses import dataclass
from functools import cached_property

from grete.protocol.ids import TopicPartition, split_producer_id
from tests.verification.simulation.plan import SOURCE_KEYS, Plan, out_topic


@dataclass(frozen=True)
class StageCode:
    """A task's place in the job: the destinations of its outputs."""

    name: bytes
    stage: str
    keys: int
    streams: tuple[tuple[TopicPartition, ...], ...]  # of each stream, the partitions
    external: tuple[TopicPartition, ...]  # the partitions of its external topic, if it writes one
    files: bool  # it writes files through an outbox instead (S2)
    timed: bool  # it has timers and a window
    window: str  # which of WINDOWS
    joins: bool  # it has a join, too
    letters: bool  # it fails on some records, which go to its external topic as they came
    batch: bool  # it takes batches
    once: bool  # it drops what comes a second time from the outside
    wide: bool  # some records change all keys, and most change the same one
    numbered: bool  # and knows it by its number in a session
    deterministic: bool
    disorder: int
    topics: tuple[str, ...]  # that it reads, as its declarations name them
    priorities: tuple[int, ...]  # of these
    whole: frozenset[str]  # of those from stages, the ones that each task reads whole
    copied: tuple[bool, ...]  # whether a stream that it writes is broadcast
    sends_to: tuple[str, ...]  # of each stream, the topic as its declarations name it
    expires: bool  # it has a store with ttl_ms, too
    calls: bool  # it makes calls
    wall: bool  # it has wall-clock timers, too
    drained: bool  # its timers send in aligned mode, too, and some set others
    bursts: bool  # it has timers alone, several for each record

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Return the attributes of the outputs to streams."""
        return tuple(f"stream{index}" for index in range(len(self.streams)))


def stage_code(plan: Plan, producer: int) -> StageCode:
    """Return the code of a task's stage."""
    stage = split_producer_id(producer)[0]
    streams, external = plan.topology.streams_out_of(stage), plan.topology.externals_of(stage)
    read = [stream.user_topic for stream in plan.topology.streams_into(stage)]
    return StageCode(
        b"%d" % stage,
        plan.topology.stages[stage].name,
        plan.keys * (SOURCE_KEYS if plan.tight_batch and plan.topology.is_source(stage) else 1),
        tuple(tuple(TopicPartition(stream.topic, p) for p in range(stream.partitions)) for stream in streams),
        tuple(TopicPartition(out_topic(stage), p) for p in range(plan.out_partitions.get(stage, 0))),
        stage in plan.files,
        stage in plan.topology.timed,
        plan.window,
        plan.joins and stage not in plan.bursts,
        stage in plan.letters,
        stage in plan.batches,
        stage in plan.once,
        plan.wide,
        stage in plan.numbered,
        stage in plan.topology.deterministic,
        plan.disorder,
        tuple(topics := dict.fromkeys([*read, *external])),
        tuple(plan.priorities.get(topic, 0) if topic in external else 0 for topic in topics),
        frozenset(stream.user_topic for stream in plan.topology.streams_into(stage) if stream.broadcast),
        tuple(stream.broadcast for stream in streams),
        tuple(stream.user_topic for stream in streams),
        plan.expires and not plan.joins and stage in plan.topology.timed - plan.batches - plan.bursts,
        stage in plan.calls,
        plan.wall and stage in plan.topology.timed - plan.bursts,
        plan.drained,
        stage in plan.bursts,
    )
