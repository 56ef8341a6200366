"""The worlds to explore: small jobs, and the bounds of each. Plain data."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.core.limits import Limits
from grete.protocol.ids import TopicPartition, split_producer_id

ROOMY = 1 << 40
IN = "in"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a world: records of each source, checkpoints, and faults.

    ``zombies``: second live instances of a task. ``late``: messages that reach the log after their sender's death.
    """

    records: int = 1
    checkpoints: int = 1
    crashes: int = 0
    zombies: int = 0
    late: int = 0

    def __str__(self) -> str:
        """Render for people: what does not happen is left out."""
        names = (("record", "s"), ("checkpoint", "s"), ("crash", "es"), ("zombie", "s"), ("late message", "s"))
        counts = (self.records, self.checkpoints, self.crashes, self.zombies, self.late)
        counted = zip(counts, names, strict=True)
        return ", ".join(f"{count} {name}{plural if count > 1 else ''}" for count, (name, plural) in counted if count)


@dataclass(frozen=True)
class World:
    """A job, how large its early buffers are (0: skip and seek back, A5), and the bounds."""

    name: str
    topology: Topology
    bounds: Bounds
    early_bytes_max: int = ROOMY
    wirings: tuple[TaskWiring, ...] = field(init=False)
    partitions: tuple[TopicPartition, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Derive tasks and internal partitions, in a fixed order."""
        stages = self.topology.stages
        wirings = tuple(wire(self.topology, stage.ordinal, p) for stage in stages for p in range(stage.partitions))
        partitions = [w.changelog for w in wirings] + [p for w in wirings for p in w.outputs]
        object.__setattr__(self, "wirings", wirings)
        object.__setattr__(self, "partitions", tuple(dict.fromkeys(partitions)))

    @property
    def limits(self) -> Limits:
        """One checkpoint a millisecond; nothing but the early buffer is tight."""
        return Limits(
            checkpoint_interval_ms=1,
            early_memory_bytes_max=ROOMY,
            early_bytes_max=self.early_bytes_max,
            uncommitted_state_bytes_max=ROOMY,
            changelog_retention_ms=ROOMY,
            checkpoint_ahead_ms=ROOMY,
        )

    def task_of(self, producer: int) -> int:
        """Return the index of a producer's task."""
        return [wiring.producer for wiring in self.wirings].index(producer)

    def routes(self, task: int) -> int:
        """Return between how many partitions the task's user code chooses."""
        return max((s.partitions for s in self.topology.streams_out_of(self.stage(task))), default=1)

    def stage(self, task: int) -> int:
        """Return the ordinal of the task's stage."""
        return split_producer_id(self.wirings[task].producer)[0]

    def origins(self, task: int) -> list[bytes]:
        """Return the names of the records that a source task reads."""
        return [f"{self.wirings[task].name}:{n}".encode() for n in range(self.bounds.records)]

    def paths(self, task: int) -> Iterator[tuple[int, bytes]]:
        """Yield (sink task or stage's first task, origin) once for each way of a source's record to a sink stage."""
        for sink in self._ways(self.stage(task)):
            for origin in self.origins(task):
                yield sink, origin

    def _ways(self, stage: int) -> Iterator[int]:
        streams = self.topology.streams_out_of(stage)
        if not streams:
            yield stage
        for stream in streams:
            yield from self._ways(stream.consumer)


def _job(*stages: tuple[str, int], edges: str) -> Topology:
    """Return a job: stages (name, tasks), edges as "ab bc"; a stage that none feeds reads the external topic."""
    names = [name for name, _ in stages]
    streams = tuple(
        Stream(f"{edge[0]}→{edge[1]}", names.index(edge[0]), names.index(edge[1]), dict(stages)[edge[1]])
        for edge in edges.split()
    )
    fed = {stream.consumer for stream in streams}
    return Topology(
        "m",
        tuple(Stage(name, ordinal, count) for ordinal, (name, count) in enumerate(stages)),
        streams,
        {ordinal: (IN,) for ordinal in range(len(stages)) if ordinal not in fed},
    )


CHAIN = _job(("a", 1), ("b", 1), edges="ab")
LONG = _job(("a", 1), ("b", 1), ("c", 1), edges="ab bc")
DIAMOND = _job(("a", 1), ("b", 1), ("c", 1), edges="ab ac bc")
SHARED = _job(("a", 2), ("b", 1), edges="ab")  # two sources, one partition: the design document's shared channel
JOINED = _job(("a", 1), ("b", 1), ("c", 1), edges="ac bc")  # two sources, a stream each
ROUTED = _job(("a", 1), ("b", 2), edges="ab")  # user code chooses the partition, again at each attempt


# the consumer has a table of its own, which it reads before what the source sends (A2c)
TABLED = replace(CHAIN, external_inputs={0: (IN,), 1: (IN,)}, bootstrap={1: frozenset({IN})})


def _worlds(*worlds: World) -> dict[str, World]:
    return {world.name: world for world in worlds}


# A few seconds each: a part of the test suite, beside the worlds of counterexamples.py.
SLICE = _worlds(
    World("chain", CHAIN, Bounds(crashes=1, zombies=1)),
    World("chain, two checkpoints", CHAIN, Bounds(records=2, checkpoints=2, crashes=1)),
    World("diamond", DIAMOND, Bounds(crashes=1)),
    World("shared", SHARED, Bounds(crashes=1)),
    World("joined, no buffer", JOINED, Bounds(checkpoints=2), early_bytes_max=0),
    World("routed", ROUTED, Bounds(crashes=1)),
    World("table", TABLED, Bounds(crashes=1)),
)

# Minutes in all: two crashes, a second instance, late messages, two checkpoints, early buffers of nothing.
FULL = _worlds(
    World("chain", CHAIN, Bounds(crashes=2, zombies=1)),
    World("chain, late messages", CHAIN, Bounds(crashes=1, zombies=1, late=1)),
    World("chain, two checkpoints", CHAIN, Bounds(records=2, checkpoints=2, crashes=2)),
    World("long chain", LONG, Bounds(crashes=2)),
    World("long chain, zombie", LONG, Bounds(zombies=1)),
    World("diamond", DIAMOND, Bounds(crashes=2)),
    World("diamond, zombie", DIAMOND, Bounds(zombies=1)),
    World("shared", SHARED, Bounds(crashes=2)),
    World("shared, zombie", SHARED, Bounds(zombies=1)),
    World("shared, two checkpoints", SHARED, Bounds(records=2, checkpoints=2)),
    World("shared, no buffer", SHARED, Bounds(records=2, checkpoints=2), early_bytes_max=0),
    World("joined", JOINED, Bounds(crashes=2)),
    World("joined, two checkpoints", JOINED, Bounds(checkpoints=2, crashes=1)),
    World("joined, no buffer", JOINED, Bounds(checkpoints=2, crashes=1), early_bytes_max=0),
    World("routed", ROUTED, Bounds(crashes=2)),
    World("table", TABLED, Bounds(crashes=2, zombies=1)),
    World("table, two checkpoints", TABLED, Bounds(records=2, checkpoints=2, crashes=2)),
)
