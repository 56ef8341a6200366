"""The external input of a world: the records of each input, and the marks that each must leave."""

import random
from collections.abc import Mapping
from dataclasses import replace

from grete.core.graph.topology import Topology
from grete.protocol.ids import TopicPartition

Rows = tuple[tuple[float, bytes], ...]  # of a partition: share of the steps after which it arrives, value
KEYED, BROADCAST = "table", "whole"  # the first word of a table's topic
OF_A_TABLE = 50  # above a record's partition, in its ident, if it is a table's: no other record has that ident


def rows_of(r: random.Random, stage: int, partition: int) -> Rows:
    """Return the records of one external partition: some producers are idle, some send ten times as much as others."""
    count = r.choice((0, 2, 4, 8, 8, 12, 30))
    early = r.choice((r.random(), 1.0))  # share of the records that are there at the start
    arrivals = sorted(0.0 if r.random() < early else r.random() * 0.6 for _ in range(count))
    return tuple((at, b"%d.%d.%d;;" % (stage, partition, number)) for number, at in enumerate(arrivals))


def expected_of(
    edges: tuple[tuple[int, int], ...],
    inputs: Mapping[TopicPartition, Rows],
    writes: set[int],
) -> frozenset[bytes]:
    """Return ident;path for each way of each record to a stage that writes to the outside."""
    expected = set()
    for partition, rows in inputs.items():
        ways = [[int(partition.topic.split(".")[1])]]
        while ways:
            way = ways.pop()
            ways += [[*way, consumer] for producer, consumer in edges if producer == way[-1]]
            if way[-1] in writes:
                path = b"".join(b"%d" % s for s in way)
                expected |= {value.split(b";")[0] + b";" + path for _, value in rows}
    return frozenset(expected)


def table_of(seed: int, topology: Topology) -> tuple[Topology, dict[TopicPartition, Rows]]:
    """Return the job with a table beside the inputs of one stage, and the table's records, by partition.

    Half of the tables are read first (A2c), half are broadcast (A2d), with another number of partitions.
    """
    r = random.Random(f"rows of a table {seed}")
    stages = [s.ordinal for s in topology.stages]
    stage = r.choice([s for s in stages if s not in topology.deterministic or topology.is_source(s)])
    first, whole = r.choice(((True, False), (True, True), (False, True)))
    topic = f"{BROADCAST if whole else KEYED}.{stage}"
    count = r.choice((1, 2, 3)) if whole else topology.stages[stage].partitions
    topology = replace(
        topology,
        external_inputs={**topology.external_inputs, stage: (*topology.externals_of(stage), topic)},
        bootstrap={stage: frozenset({topic})} if first else {},
        broadcast={stage: {topic: count}} if whole else {},
    )
    return topology, {TopicPartition(topic, p): rows_of(r, stage, p + OF_A_TABLE) for p in range(count)}


def is_broadcast(partition: TopicPartition) -> bool:
    """Tell whether each task of a stage reads a partition (A2d)."""
    return partition.topic.partition(".")[0] == BROADCAST


def value_for(reader: int, partition: TopicPartition, value: bytes) -> bytes:
    """Return a row as the task of a number sees it: of a broadcast table each has an ident of its own."""
    if not is_broadcast(partition):
        return value
    ident, rest = value.split(b";", 1)
    return b"%s.%d;%s" % (ident, reader, rest)


def as_tasks_see(topology: Topology, rows: Mapping[TopicPartition, Rows]) -> dict[TopicPartition, Rows]:
    """Return rows as the tasks that read them process them: of a broadcast table a copy for each task."""
    seen = dict(rows)
    for partition, whole in rows.items():
        stage = int(partition.topic.split(".")[1])
        if partition.topic in topology.broadcast.get(stage, ()):
            readers = range(topology.stages[stage].partitions)
            seen[partition] = tuple((at, value_for(each, partition, value)) for at, value in whole for each in readers)
    return seen
