"""Wiring of a task in its job: the alignment's set, the outputs, the changelog (A6, 1.2)."""

from dataclasses import replace

from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology, stream_topic
from grete.protocol.ids import TopicPartition, producer_id

# a → b twice (two topics), a → c, b → c; a also reads outside
JOB = Topology(
    "j",
    tuple(Stage(name, ordinal, 3) for ordinal, name in enumerate("abc")),
    (
        Stream(stream_topic("j", "a", "t", "b"), 0, 1, 3),
        Stream(stream_topic("j", "a", "u", "b"), 0, 1, 3),
        Stream(stream_topic("j", "a", "t", "c"), 0, 2, 3),
        Stream(stream_topic("j", "b", "v", "c"), 1, 2, 3),
    ),
    {0: ("in", "more")},
)


def test_the_alignment_is_over_every_producer_in_every_input_partition() -> None:
    """(producer, stream, partition) from the topology: two streams of one producer are two channels (A6)."""
    task = wire(JOB, 1, 2)
    t, u = TopicPartition("j.a.t.b", 2), TopicPartition("j.a.u.b", 2)
    assert task.channels == tuple((producer_id(0, p), partition) for partition in (t, u) for p in range(3))
    fan_in = wire(JOB, 2, 0)
    assert {(producer >> 16, partition.topic) for producer, partition in fan_in.channels} == {
        (0, "j.a.t.c"),
        (1, "j.b.v.c"),
    }


def test_outputs_are_all_partitions_of_all_streams() -> None:
    """Each partition of a stream is written by all tasks of the producing stage (1.1)."""
    task = wire(JOB, 0, 1)
    assert task.outputs == tuple(TopicPartition(stream.topic, p) for stream in JOB.streams[:3] for p in range(3))
    assert wire(JOB, 2, 0).outputs == ()


def test_a_task_reads_its_own_partition_of_external_topics() -> None:
    """Partition p of every external topic belongs to task p (A2)."""
    assert wire(JOB, 0, 2).external == (TopicPartition("in", 2), TopicPartition("more", 2))
    assert wire(JOB, 1, 2).external == ()


def test_a_task_reads_all_partitions_of_a_broadcast_topic() -> None:
    """A task reads all partitions of a broadcast topic, its own of others, in the order of declarations (A2d)."""
    job = replace(JOB, broadcast={0: {"more": 2}}, bootstrap={0: frozenset({"more"})})
    more = tuple(TopicPartition("more", p) for p in range(2))
    assert wire(job, 0, 2).external == (TopicPartition("in", 2), *more)
    assert wire(job, 0, 2).bootstrap == more
    assert (job.keyed_externals_of(0), job.keyed_externals_of(1)) == (("in",), ())


def test_a_task_reads_the_partitions_whose_number_is_its_own_modulo_the_tasks() -> None:
    """A topic with a number of its own has each of its partitions read by one task (A2f)."""
    stages = (replace(JOB.stages[0], counts={"more": 9}), *JOB.stages[1:])
    job = replace(JOB, stages=stages, external_inputs={0: ("in", "more", "whole")})
    job = replace(job, broadcast={0: {"whole": 2}}, bootstrap={0: frozenset({"more"})})
    more, whole = [TopicPartition("more", p) for p in (2, 5, 8)], [TopicPartition("whole", p) for p in range(2)]
    task = wire(job, 0, 2)
    assert task.external == (TopicPartition("in", 2), *more, *whole)
    assert (task.bootstrap, task.grouped) == (tuple(more), frozenset({"more"}))
    assert wire(JOB, 0, 2).grouped == frozenset()
    assert (job.counts, JOB.counts) == ({"more": 9}, {})
    read = [each for number in range(3) for each in wire(job, 0, number).external if each.topic == "more"]
    assert sorted(read) == [TopicPartition("more", p) for p in range(9)]


def test_a_task_has_a_name_an_id_and_a_changelog_partition() -> None:
    """ProducerId = stage ordinal × 65,536 + partition; the changelog has a partition per task (1.2)."""
    task = wire(JOB, 2, 1)
    assert (task.name, task.producer) == ("c-1", 2 * 65_536 + 1)
    assert task.changelog == TopicPartition("j.c.changelog", 1)
    assert task.fingerprint == JOB.fingerprint()
    assert [wire(JOB, stage, 0).is_source for stage in range(3)] == [True, False, False]
