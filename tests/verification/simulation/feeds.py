"""What comes into a world from outside: the records of each input, and what each must leave behind."""

import random
from collections.abc import Mapping
from dataclasses import replace

from framework.core.topology import Topology
from protocol.ids import TopicPartition

Rows = tuple[tuple[float, bytes], ...]  # of a partition: share of the steps after which it arrives, value
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
    """Return the job with a table beside the inputs of one stage, read before them (A2c), and the table's records."""
    r = random.Random(f"rows of a table {seed}")
    allowed = [
        s.ordinal for s in topology.stages if s.ordinal not in topology.deterministic or topology.is_source(s.ordinal)
    ]
    stage = r.choice(allowed)
    topic = f"table.{stage}"
    external = {**topology.external_inputs, stage: (*topology.externals_of(stage), topic)}
    topology = replace(topology, external_inputs=external, bootstrap={stage: frozenset({topic})})
    count = topology.stages[stage].partitions
    return topology, {TopicPartition(topic, p): rows_of(r, stage, p + OF_A_TABLE) for p in range(count)}
