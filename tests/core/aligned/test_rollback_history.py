"""Rollback histories: which records they roll back (R3), over all channels of a task (R4) and its restarts (R2)."""

from hypothesis import given
from hypothesis import strategies as st

from grete.core import actions as do
from grete.core.changelog.changelog_fold import extend_rollback_history, is_rolled_back
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.protocol.commit import ProducerRollbacks
from grete.protocol.control import decode_rollback_marker
from grete.protocol.ids import RollbackEntry, TopicPartition
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, A1, INNER, OUT, Log, Producer


def diamond() -> tuple[Scenario, tuple[TopicPartition, TopicPartition], Producer]:
    """Return a task that reads one producer through two streams."""
    streams = (Stream("j.a.s3.b", 0, 1, 1), Stream("j.a.s4.b", 0, 1, 1))
    wiring = wire(Topology("j", (Stage("a", 0, 1), Stage("b", 1, 1)), streams), 1, 0)
    log, partitions = Log(), (TopicPartition("j.a.s3.b", 0), TopicPartition("j.a.s4.b", 0))
    producer = Producer(log, A0, *partitions, fingerprint=wiring.fingerprint)
    producer.rollback_marker(0)
    task = Scenario(log, wiring).start()
    task.read()
    return task, partitions, producer


# --- R3: rolled back -------------------------------------------------------------------------------------------------

HISTORIES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), max_size=8)


def all_incarnations(steps: list[tuple[int, int]]) -> list[RollbackEntry]:
    """Return a rollback history without any pruning.

    The first numbers of the pairs are growing generations, the second ones are checkpoints.
    """
    entries, generation = [], 0
    for more, restored in steps:
        generation += more
        entries.append(RollbackEntry(generation, restored))
    return entries


@given(HISTORIES, st.integers(0, 30), st.integers(0, 7))
def test_rolled_back_by_any_known_later_incarnation(
    steps: list[tuple[int, int]], generation: int, checkpoint_id: int
) -> None:
    """(u, g, v) is rolled back iff some later generation restored a checkpoint < v.

    The pruned rollback history says the same (R3).
    """
    entries = all_incarnations(steps)
    pruned: tuple[RollbackEntry, ...] = ()
    for entry in entries:
        pruned = extend_rollback_history(pruned, entry)
    assert is_rolled_back(pruned, generation, checkpoint_id) == any(
        g > generation and r < checkpoint_id for g, r in entries
    )


@given(HISTORIES)
def test_a_pruned_rollback_history_is_short(steps: list[tuple[int, int]]) -> None:
    """Both generations and checkpoints grow in a pruned rollback history.

    It has at most one entry for each checkpoint that was ever restored (R3).
    """
    pruned: tuple[RollbackEntry, ...] = ()
    for entry in all_incarnations(steps):
        pruned = extend_rollback_history(pruned, entry)
        assert pruned[-1] == entry
    assert [e.checkpoint_id for e in pruned] == sorted({e.checkpoint_id for e in pruned})
    assert [e.generation for e in pruned] == sorted({e.generation for e in pruned})


def test_rolled_back_records_still_in_the_stream_are_dropped() -> None:
    """In another partition the dead incarnation's records are still to be read.

    The rollback history rolls them back (R3).
    """
    task, streams, producer = diamond()
    first, second = streams
    producer.send(1, "kept", to=second)
    producer.send(2, "rolled back", to=second)
    producer.rollback_marker(1, first)  # the other partition does not know of it yet
    task.read(first)
    task.read(second)
    assert (task.open, task.core.seen["rolled-back records dropped"]) == (["kept"], 1)


def test_the_whole_rollback_history_counts_not_only_the_newest_generation() -> None:
    """Generation 2 went back to 1, generation 3 to 2.

    What 1 made for checkpoint 2 stays rolled back; what 2 made counts (R3).
    """
    task, (first, second), producer = diamond()
    producer.send(2, "rolled back", to=second)
    producer.rollback_marker(1)
    producer.send(2, "counts", to=second)
    producer.rollback_marker(2, first)
    task.read(first)
    task.read(second)
    producer.announce(second)
    producer.mark(2)
    task.read()
    assert task.core.inputs.rollbacks.known[A0] == ((1, 0), (2, 1), (3, 2))
    assert task.committed[2] == ["counts"]


# --- R4: one table for all channels -----------------------------------------------------------------------------------


def test_a_producers_rollback_marker_rolls_a_diamond_back_once() -> None:
    """One table for all channels: the second channel's restore only sets that channel (R4)."""
    task, (first, second), producer = diamond()
    producer.send(1, "rolled back", to=first)
    producer.send(1, "rolled back too", to=second)
    producer.rollback_marker(0, first)
    producer.send(1, "x", to=first)
    task.read()
    producer.announce(second)
    producer.send(1, "y", to=second)
    task.read()
    assert (task.open, task.core.seen["rollbacks"], task.core.seen["rollback markers"]) == (["x", "y"], 1, 2)
    producer.mark(1)
    task.read()
    assert task.state == ["x", "y"]


def test_a_diamonds_second_channel_may_commit_before_it_learns_of_the_rollback_marker() -> None:
    """The generation announced is that of a channel, and part of the commit: the later restore is not stale (R4)."""
    task, (first, second), producer = diamond()
    producer.send(1, "x", to=second)
    producer.mark(1)
    producer.rollback_marker(1, first)
    task.read()
    assert task.core.frozen == 1
    producer.announce(second)
    producer.send(2, "y", to=second)
    after = task.successor().start()
    after.read()
    assert after.open == ["y"]
    assert {(p.topic, c.generation) for (_, p), c in after.core.inputs.channels.items()} == {
        (first.topic, 2),
        (second.topic, 2),
    }


# --- what a restart knows ---------------------------------------------------------------------------------------------


def test_rollback_histories_survive_a_restart() -> None:
    """The producers' rollback histories are part of the commit.

    Rolled-back records that are read after a restart stay rolled back (R3, 1.2).
    """
    task, a0, a1 = running()
    a0.rollback_marker(0)
    task.commit(1, a0, a1)
    [of_commit] = task.log.commits(INNER)[1:]
    assert of_commit.known == (ProducerRollbacks(A0, ((1, 0), (2, 0))), ProducerRollbacks(A1, ((1, 0),)))  # type: ignore[arg-type]  # entries are tuples, too
    after = task.successor(same_host=False).start()
    assert after.core.inputs.rollbacks.known == {A0: ((1, 0), (2, 0)), A1: ((1, 0),)}


def test_an_own_rollback_history_grows_with_each_start_and_each_rollback() -> None:
    """Every incarnation is announced with all those that still roll something back (R2).

    Each is a pair: the generation, and the checkpoint that it went back to.
    """
    task, a0, a1 = running()
    task.commit(1, a0, a1)
    after = task.successor().start()
    after.read()
    a0.send(2, "rolled back")
    a0.rollback_marker(1)
    after.read()
    markers = [decode_rollback_marker(send.value) for send in after.all(do.Send) if send.partition == OUT[0]]
    assert [marker.rollback_history for marker in markers] == [((1, 0), (2, 1)), ((1, 0), (3, 1))]
