"""A job's graph between two starts: what a start refuses before it writes, whose restores are taken (1.2, C1, R4)."""

from dataclasses import replace

import pytest

from grete.core import actions as do
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.errors import ConfigError
from grete.protocol.ids import TopicPartition
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, IN, JOB, SOURCE, STREAMS, Log, Producer
from tests.core.test_startup import committed

STAGES = JOB.stages
LATER = replace(
    JOB, stages=(*STAGES, Stage("d", 3, 2)), streams=(*STREAMS, Stream("j.b.p.d", 1, 3, 2), Stream("j.a.t.d", 0, 3, 2))
)


def exchanged(job: Topology, one: int, other: int) -> Topology:
    """Return a job with two stages in each other's places."""
    order = list(range(len(job.stages)))
    order[one], order[other] = other, one
    stages = tuple(replace(job.stages[old], ordinal=new) for new, old in enumerate(order))
    streams = tuple(replace(s, producer=order.index(s.producer), consumer=order.index(s.consumer)) for s in job.streams)
    return Topology(job.job, stages, streams)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(
    ("job", "stage", "text"),
    [
        (replace(JOB, streams=STREAMS[:1]), 1, r"output j\.b\.o\.c\[0\]"),
        (exchanged(JOB, 1, 2), 2, "made by stage number 1 of the job, and in this code the stage has number 2"),
    ],
)
def test_a_start_that_is_refused_writes_nothing(job: Topology, stage: int, text: str, *, aligned: bool) -> None:
    """A refused start writes no claim and no rollback marker.

    The code of before, also one that is at work, goes on as if nothing had been (1.2, C1).
    """
    task = committed()
    before = {partition: list(rows) for partition, rows in task.log.rows.items()}
    after = Scenario(task.log, wire(job, stage, 0), aligned=aligned)
    with pytest.raises(ConfigError, match=text):
        after.start()
    assert {partition: rows for partition, rows in task.log.rows.items() if rows} == before
    assert (after.all(do.Send), after.all(do.AppendChangelog)) == ([], [])


def test_a_graph_that_changed_before_the_claim_is_refused_behind_it() -> None:
    """Between the read and the claim another process has committed with a stage more: nothing is announced (C1)."""
    log = Scenario(Log(), SOURCE).start().log
    after = Scenario(log, SOURCE)
    after.hold.add(do.AppendChangelog)
    after.start()
    Scenario(log, wire(LATER, 0, 0)).start().tick(100)
    with pytest.raises(ConfigError, match=r"output j\.a\.t\.d"):
        after.release()
    assert after.all(do.Send) == []


def test_a_stale_rollback_marker_of_another_topology_is_ignored() -> None:
    """It is judged before its fingerprint: what it says is superseded by a producer that is ours (R4)."""
    task, a0, _ = running(generations=(3, 1))
    other = Producer(task.log, A0, fingerprint=replace(JOB, job="k").fingerprint())
    other.rollback_marker(0, generation=2)
    a0.send(1, "x")
    task.read()
    assert (task.open, task.core.seen["stale rollback markers"]) == (["x"], 1)


def test_a_rollback_marker_that_another_stream_has_superseded_is_taken_whatever_its_topology() -> None:
    """Its producer has gone on with a graph that is ours, and has announced that in a stream that was read first."""
    t, u = TopicPartition("j.a.t.b", 0), TopicPartition("j.a.u.b", 0)
    streams = (Stream("j.a.t.b", 0, 1, 2, "t"), Stream("j.a.u.b", 0, 1, 2, "u"))
    twice = wire(Topology("j", (Stage("a", 0, 1), Stage("b", 1, 2)), streams), 1, 0)
    task = Scenario(Log(), twice).start()
    foreign = Producer(task.log, A0, t, u, fingerprint=replace(JOB, job="k").fingerprint())
    ours = Producer(task.log, A0, t, u, fingerprint=twice.fingerprint)
    foreign.rollback_marker(0, t, generation=1)
    ours.rollback_marker(0, generation=2)
    ours.send(1, "x", to=t)
    task.read(u)
    task.read(t)
    assert task.open == ["x"]


def test_a_producer_with_a_graph_of_which_ours_is_an_extension_is_ours() -> None:
    """It ran before a stage was added, or is still running so; what it sends to old stages is the same (1.2)."""
    added = Stream("j.b.o.d", 1, 3, 2)
    extended = replace(JOB, stages=(*JOB.stages, Stage("d", 3, 2)), streams=(*JOB.streams, added))
    task = Scenario(Log(), wire(extended, 1, 0)).start()
    other = Producer(task.log, A0, fingerprint=JOB.fingerprint())
    other.rollback_marker(0)
    other.send(1, "x")
    task.read()
    assert task.open == ["x"]
    into_old = replace(extended, streams=(*extended.streams, Stream("j.d.back.b", 3, 1, 2)))
    assert extended.fingerprints() > {JOB.fingerprint(), extended.fingerprint()}
    assert JOB.fingerprint() not in into_old.fingerprints()
    kept = wire(replace(extended, first=JOB.fingerprint(), known=frozenset({7})), 1, 0)
    assert (kept.fingerprint, 7 in kept.fingerprints) == (JOB.fingerprint(), True)


def test_a_stage_may_be_added_after_the_others() -> None:
    """New streams out of an old stage begin at seq 1; the new stage takes them from the rollback marker on (1.2)."""
    task = committed()
    added = wire(LATER, 1, 0)
    after = Scenario(task.log, added).start()
    new = TopicPartition("j.b.p.d", 0)
    assert after.core.frozen == 3
    assert [(header.checkpoint_id, header.seq) for header in after.sent(new)] == [(3, 1)]
    reader = Scenario(task.log, wire(LATER, 3, 0)).start()
    other = Producer(task.log, 1 << 16 | 1, new, fingerprint=LATER.fingerprint())
    other.rollback_marker(3)
    reader.read(new)
    assert reader.core.inputs.channels[added.producer, new].marker == 3


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (replace(JOB, stages=(Stage("a", 0, 3), *STAGES[1:])), r"input j\.a\.t\.b\[0\] from producer 2"),
        (
            Topology("j", (*STAGES[:2], Stage("c", 2, 1)), (STREAMS[0], replace(STREAMS[1], partitions=1))),
            r"output j\.b\.o\.c\[1\]",
        ),
        (replace(JOB, streams=STREAMS[:1]), r"output j\.b\.o\.c\[0\]"),
        (replace(JOB, streams=STREAMS[1:]), r"input j\.a\.t\.b\[0\] from producer 0"),
        (
            replace(JOB, streams=(*STREAMS, Stream("j.c.back.b", 2, 1, 2))),
            r"input j\.c\.back\.b\[0\] from producer 131072",
        ),
    ],
)
def test_a_graph_that_lost_something_is_refused(job: Topology, text: str) -> None:
    """Other partition counts, a removed or an added input, a removed output: refused with what to do instead (1.2)."""
    task = committed()
    with pytest.raises(ConfigError, match=text) as caught:
        Scenario(task.log, wire(job, 1, 0)).start()
    assert "checkpoint 3" in str(caught.value)
    assert "put the stages back into their order and under their names" in str(caught.value)
    assert "To change the number of partitions: grete rescale" in str(caught.value)


def test_a_removed_external_input_is_refused() -> None:
    """A graph without an external input that is in the state is refused, naming the input (1.2)."""
    task = Scenario(Log(), SOURCE).start()
    with pytest.raises(ConfigError, match=rf"external input {IN.topic}\[0\]"):
        Scenario(task.log, wire(replace(JOB, external_inputs={}), 0, 0)).start()


def test_a_commit_by_a_graph_that_the_code_does_not_know_is_refused() -> None:
    """The task itself is wired as before, and another stage is not: only the fingerprint tells it (1.2, C1)."""
    log = Scenario(Log(), SOURCE).start().log
    before = {partition: list(rows) for partition, rows in log.rows.items() if rows}
    without_c = wire(replace(JOB, streams=STREAMS[:1]), 0, 0)
    with pytest.raises(ConfigError, match=rf"under a graph of fingerprint {JOB.fingerprint():016x}, and this job"):
        Scenario(log, without_c).start()
    assert {partition: rows for partition, rows in log.rows.items() if rows} == before
