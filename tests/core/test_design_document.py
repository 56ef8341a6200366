"""The examples of the design document, by name: the shared channel of n1, n2 → n3, and its protocol step by step.

Where the project goes further than the document (docs/decisions), the test is of the project's rule.
"""

from dataclasses import replace

import pytest

from grete.core import actions as do
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.errors import Halted
from grete.protocol.ids import TopicPartition, producer_id
from tests.core.scenario import LIMITS, Scenario
from tests.core.streams import Log, Producer

# S3 and S4 are written by n1 and n2, which are two tasks of one stage, and read by n3, which writes S5.
STREAMS = (Stream("S3", 0, 1, 1), Stream("S4", 0, 1, 1), Stream("S5", 1, 2, 1))
JOB = Topology("paper", (Stage("n12", 0, 2), Stage("n3", 1, 1), Stage("n4", 2, 1)), STREAMS, {0: ("S1-S2",)})
N3 = wire(JOB, 1, 0)
S3, S4, S5 = (TopicPartition(stream.topic, 0) for stream in STREAMS)
V1, V2 = 1, 2


def figure_2() -> tuple[Scenario, Producer, Producer]:
    """Return n3 with Fig. 2 in its inputs, before it reads; in S3 offset 2 is the document's position 22, in S4 52.

    S3: 22 (n1, v1), 23 (n2, v1), n1's marker v1, 24 (n1, v2), 25 (n2, v1), n2's marker v1, 27 (n2, v2).
    S4: 52 (n2, v1), 53 (n1, v1), n1's marker v1, 54 (n1, v2), 55: n2's marker v1.
    """
    log = Log()
    n1, n2 = (Producer(log, producer_id(0, p), S3, S4, fingerprint=N3.fingerprint) for p in (0, 1))
    n1.rollback_marker(0)
    n2.rollback_marker(0)
    n1.send(V1, "S3:22", to=S3)
    n2.send(V1, "S3:23", to=S3)
    n1.mark(V1, S3)
    n1.send(V2, "S3:24", to=S3)
    n2.send(V1, "S3:25", to=S3)
    n2.mark(V1, S3)
    n2.send(V2, "S3:27", to=S3)
    n2.send(V1, "S4:52", to=S4)
    n1.send(V1, "S4:53", to=S4)
    n1.mark(V1, S4)
    n1.send(V2, "S4:54", to=S4)
    n2.mark(V1, S4)
    return Scenario(log, N3).start(), n1, n2


def to(task: Scenario, s3: int, s4: int) -> None:
    """Read S3, then S4, up to and including the document's positions."""
    for partition, position in ((S3, s3 - 20), (S4, s4 - 50)):
        at = {S3: [0, 1, 2, 3, 5, 6, 7, 8], S4: [0, 1, 2, 3, 5, 6]}[partition][
            position
        ]  # n1's marker has no position there
        task.read(partition, at + 1 - task.position[partition])


# --- "Shared Channel Problem", Fig. 2: the walk-through ---------------------------------------------------------------


def test_step_1_everything_so_far_is_of_v1() -> None:
    """At {(S3, 23), (S4, 53)} all that has been read has checkpoint 1: it is in the open write batch."""
    task, *_ = figure_2()
    to(task, 23, 53)
    assert task.open == ["S3:22", "S3:23", "S4:52", "S4:53"]


def test_step_2_a_record_of_v2_does_not_go_into_v1() -> None:
    """At {(S3, 24), (S4, 53)} the early record waits in the buffer of checkpoint 2.

    That is solution 3, not a second write batch.
    """
    task, *_ = figure_2()
    to(task, 24, 53)
    assert "S3:24" not in task.open
    assert [frame.header.checkpoint_id for frame in task.core.inputs.early] == [V2]


def test_step_3_a_record_of_v1_behind_it_is_processed_at_once() -> None:
    """At {(S3, 25), (S4, 53)}: n2's record of checkpoint 1 is not held up by n1's record of checkpoint 2."""
    task, *_ = figure_2()
    to(task, 25, 53)
    assert task.open == ["S3:22", "S3:23", "S3:25", "S4:52", "S4:53"]


def test_step_4_v1_is_not_closed_while_s4s_marker_is_missing() -> None:
    """At {(S3, 26), (S4, 53)} both markers of S3 are there, but n2's of S4 is not: the alignment is a set (A6)."""
    task, *_ = figure_2()
    to(task, 26, 53)
    assert (task.core.frozen, task.core.inputs.least_marker()) == (0, 0)


@pytest.mark.parametrize(("s3", "s4", "early"), [(27, 53, ["S3:24", "S3:27"]), (27, 54, ["S3:24", "S3:27", "S4:54"])])
def test_steps_5_and_6_more_of_v2_waits(s3: int, s4: int, early: list[str]) -> None:
    """At {(S3, 27), (S4, 53)} and {(S3, 27), (S4, 54)}: checkpoint 2 goes into its buffer, in the order of arrival."""
    task, *_ = figure_2()
    to(task, s3, s4)
    assert task.core.frozen == 0
    assert len(list(task.core.inputs.early)) == len(early)
    assert not set(early) & set(task.open)


def test_step_7_v1_holds_exactly_the_records_of_v1() -> None:
    """At {(S3, 27), (S4, 55)} all markers are there: checkpoint 1 is committed with its records and no others."""
    task, *_ = figure_2()
    to(task, 27, 55)
    assert task.core.frozen == V1
    assert sorted(task.committed[V1]) == ["S3:22", "S3:23", "S3:25", "S4:52", "S4:53"]
    assert task.open == ["S3:24", "S3:27", "S4:54"]


def test_step_8_v2_holds_the_records_of_v1_and_v2() -> None:
    """The state at the commit of checkpoint 2 is all of checkpoints 1 and 2, each record once."""
    task, n1, n2 = figure_2()
    n1.mark(V2)
    n2.mark(V2)
    task.read()
    assert task.committed[V2] == ["S3:24", "S3:27", "S4:54"]
    assert sorted(task.store) == ["S3:22", "S3:23", "S3:24", "S3:25", "S3:27", "S4:52", "S4:53", "S4:54"]
    assert set(task.store.values()) == {1}


def test_solution_2_is_what_a_buffer_of_zero_does() -> None:
    """Skip what is not of the current checkpoint and seek back later: the same checkpoints come out (A5)."""
    buffering, n1, n2 = figure_2()
    n1.mark(V2)
    n2.mark(V2)
    task = Scenario(buffering.log, N3, limits=replace(LIMITS, early_bytes_max=0)).start()
    task.read()
    assert (task.core.seen["seeks back"], task.core.seen["early records"]) == (1, 0)
    assert sorted(task.committed[V1]) == ["S3:22", "S3:23", "S3:25", "S4:52", "S4:53"]
    assert sorted(task.committed[V2]) == ["S3:24", "S3:27", "S4:54"]


# --- "Some Reasoning of Exactly Once Semantic", Fig. 1 ----------------------------------------------------------------


def committed_v1() -> tuple[Scenario, Producer, Producer]:
    """Return n3 at checkpoint 1; n1 has processed S1 up to 1,000, n2 S2 up to 200; n1 has sent more of checkpoint 2."""
    log = Log()
    n1, n2 = (Producer(log, producer_id(0, p), S3, S4, fingerprint=N3.fingerprint) for p in (0, 1))
    for producer, name in ((n1, "S1 to 1000"), (n2, "S2 to 200")):
        producer.rollback_marker(0)
        producer.send(V1, name, to=S3)
        producer.mark(V1)
    task = Scenario(log, N3).start()
    task.read()
    assert task.core.frozen == V1
    n1.send(V2, "21-30 of S3", to=S3)
    n2.send(V2, "of n2", to=S4)
    task.read()
    return task, n1, n2


def test_fig_1_either_the_old_or_the_new_output_counts_never_both() -> None:
    """n1 goes back to its first checkpoint and makes [40-45] of what was [21-30].

    Then n3 reverts, and takes only the new output.
    """
    task, n1, n2 = committed_v1()
    assert "21-30 of S3" in task.open
    n1.rollback_marker(V1)
    n1.send(V2, "40-45 of S3", to=S3)
    n1.mark(V2)
    n2.mark(V2)
    task.read()
    assert sorted(task.committed[V2]) == ["40-45 of S3", "of n2"]
    assert "21-30 of S3" not in task.store


def test_fig_1_the_other_producer_is_not_reset() -> None:
    """n2's input holds no output that was taken back: n2 goes on, and n3 reads its records again from the stream."""
    task, n1, _ = committed_v1()
    n1.rollback_marker(V1)
    task.read()
    assert task.open == ["of n2"]
    assert task.core.inputs.rollbacks.known[producer_id(0, 1)] == ((1, 0),)


def test_conclusion_1_what_was_emitted_is_reverted_by_a_message_downstream() -> None:
    """n3 cannot take back what it sent itself: its own rollback marker tells n4 (R2)."""
    task, n1, _ = committed_v1()
    task.emit(S5, "result of 21-30")
    task.flush()
    n1.rollback_marker(V1)
    task.read()
    n4 = Scenario(task.log, wire(JOB, 2, 0)).start()
    n4.read()
    assert n4.open == []
    assert [(h.generation, h.checkpoint_id) for h in task.sent(S5) if h.type == 2] == [(1, 0), (2, V1)]


# --- "Flow Overview" --------------------------------------------------------------------------------------------------


def test_checkpoint_process_steps_1_to_9() -> None:
    """Flush outputs, changelog data, commit, store with the changelog position, markers: in this order (3.x)."""
    task, *_ = figure_2()
    task.read()
    begin = next(i for i, action in enumerate(task.done) if isinstance(action, do.FlushOutputs))
    kinds = [type(action) for action in task.done[begin:] if not isinstance(action, do.Process)]
    steps = [do.FlushOutputs, do.Freeze, do.WriteData, do.AppendChangelog, do.ApplyFrozen, do.Send, do.Committed]
    assert kinds[: len(steps)] == steps


def test_restoring_step_2_another_checkpoint_than_the_last_is_an_exception() -> None:
    """Below the last checkpoint it is an exception, as the document says; above it the producer is only faster (R4)."""
    task, n1, _ = committed_v1()
    n1.rollback_marker(0)
    with pytest.raises(Halted, match="went back to checkpoint 0, but 1 is committed here"):
        task.read()


def test_get_messages_step_5_a_lower_checkpoint_is_skipped_only_if_it_is_known() -> None:
    """The document skips what is below the current checkpoint; what was never seen would be lost: it halts (A4)."""
    task, *_ = committed_v1()
    task.log.append(S4, task.log.rows[S3][1][1])  # n1's first record of S3, into a channel in which it is new
    with pytest.raises(Halted, match="new record of checkpoint 1, but 1 is closed"):
        task.read()
