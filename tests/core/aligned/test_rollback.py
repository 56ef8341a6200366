"""Rollback markers: what a task does about them (R4), how it goes back (R5). Histories: test_rollback_history.py."""

from dataclasses import replace

import pytest

from grete.core import actions as do
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.errors import Halted
from grete.protocol.control import decode_rollback_marker, encode_rollback_marker
from grete.protocol.ids import RollbackEntry
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, A1, IN, INNER, JOB, OUT, Log, Producer, T

# --- R4: what a rollback marker does ----------------------------------------------------------------------------------


def test_a_rollback_marker_of_a_slower_tasks_producer_changes_nothing_else() -> None:
    """R > L(d): the producer is ahead, which is normal; its rollback marker implies its markers up to R (R2, R4)."""
    task, a0, a1 = running()
    a0.send(1, "1")
    a0.send(2, "2")
    a0.rollback_marker(2)
    task.read()
    assert (task.open, task.core.generation) == (["1"], 1)
    assert task.core.seen["rollback markers ahead of the task"] == 1
    task.commit(2, a1)
    assert task.committed == {0: [], 2: ["1", "2"]}


def test_a_rollback_marker_without_rolled_back_records_in_the_open_write_batch_does_not_rollback() -> None:
    """Untouched: the rollback history is entered, the task goes on with its generation (R4)."""
    task, a0, a1 = running()
    a1.send(1, "of the other producer")
    a0.rollback_marker(0)
    a0.send(1, "again")
    task.read()
    assert (task.open, task.core.generation, task.core.seen["rollbacks"]) == (["of the other producer", "again"], 1, 0)
    task.commit(1, a0, a1)


def test_a_rollback_marker_that_rolls_back_what_was_processed_rolls_back() -> None:
    """The open write batch is dropped, a new generation claimed and announced, the commit's offsets read again (R4)."""
    task, a0, a1 = running()
    task.commit(1, a0, a1)
    resume = len(task.log.rows[T])
    a1.send(2, "survives")
    a0.send(2, "rolled back")
    a0.rollback_marker(1)
    a0.send(2, "instead")
    done = task.read()
    kinds = [type(action) for action in done if not isinstance(action, do.Process)]
    assert kinds == [do.DropOpen, do.ClearSpill, do.AppendChangelog, do.Send, do.Send, do.Seek]
    assert done[-3] == do.Seek(T, resume)
    assert (task.core.generation, task.open) == (2, ["survives", "instead"])
    rollback_marker = decode_rollback_marker(task.all(do.Send)[-1].value)
    assert (
        rollback_marker.header.generation,
        rollback_marker.header.checkpoint_id,
        rollback_marker.rollback_history,
    ) == (2, 1, ((1, 0), (2, 1)))


def test_after_a_rollback_only_what_counts_is_committed() -> None:
    """Each record that was not taken back is in the state once; rolled-back ones are not (R4)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.send(2, "rolled back, early")
    a1.send(1, "y")
    a0.rollback_marker(0)
    a0.send(1, "x again")
    task.commit(1, a0, a1)
    assert task.state == ["y", "x again"]
    assert task.core.seen["rollbacks"] == 1


def test_buffered_rolled_back_records_are_dropped_without_a_rollback() -> None:
    """Rolled-back records that wait in the early buffer are taken out; nothing they did is in the write batch (R4)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.send(2, "rolled back")
    a0.rollback_marker(1)
    a0.send(2, "instead")
    task.commit(1, a1)
    task.commit(2, a0, a1)
    assert (task.state, task.core.seen["rollbacks"]) == (["x", "instead"], 0)


def test_a_rollback_waits_for_the_commit_in_flight() -> None:
    """The frozen checkpoint is finished first: it holds nothing rolled back; then the open write batch goes (R4)."""
    task, a0, a1 = running()
    task.hold.add(do.AppendChangelog)
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    a0.send(2, "rolled back")
    a0.rollback_marker(1)
    a0.send(2, "instead")
    task.read()
    assert (task.open, task.core.wants_input, task.all(do.DropOpen)) == (["rolled back"], False, [])
    task.release()
    task.read()
    assert (task.committed[1], task.open) == (["x"], ["instead"])
    assert [c.checkpoint_id for c in task.log.commits(INNER)] == [0, 1]


def test_a_rollback_empties_the_early_buffer() -> None:
    """Records that waited in the buffer are read again from the stream, and processed once (R4, A5)."""
    task, a0, a1 = running()
    a1.send(2, "early")
    a0.send(1, "rolled back")
    a0.rollback_marker(0)
    for checkpoint_id in (1, 2):
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
    task.read()
    assert (task.state, task.core.seen["rollbacks"]) == (["early"], 1)


def test_a_rollback_forgets_what_markers_have_proved() -> None:
    """They are read again, behind the records that they vouch for: else those would be left out (R4, A6)."""
    streams = (Stream("j.a.t.c", 0, 2, 1), Stream("j.b.u.c", 1, 2, 1))
    fan_in = wire(Topology("j", (Stage("a", 0, 1), Stage("b", 1, 1), Stage("c", 2, 1)), streams), 2, 0)
    log = Log()
    (a, t), (b, u) = fan_in.channels
    first, second = (Producer(log, of, at, fingerprint=fan_in.fingerprint) for of, at in ((a, t), (b, u)))
    first.rollback_marker(0)
    second.rollback_marker(0)
    first.send(1, "vouched for")
    first.mark(1)
    second.send(1, "rolled back")
    task = Scenario(log, fan_in).start()
    task.read()
    second.rollback_marker(0)
    second.mark(1)
    task.read(u)
    assert (task.core.seen["rollbacks"], task.core.frozen, task.open) == (1, 0, [])
    task.read(t)
    assert task.committed[1] == ["vouched for"]


def test_a_rollback_takes_back_the_seqs_of_outputs() -> None:
    """The rollback marker rolls back what was sent for the dropped checkpoint.

    Its seqs are given out again (R2, R4).
    """
    task, a0, _ = running()
    a0.send(1, "rolled back")
    task.read()
    task.emit(OUT[0], "out 1", "out 2")
    task.flush()
    a0.rollback_marker(0)
    task.read()
    task.emit(OUT[0], "out again")
    task.flush()
    assert [(h.generation, h.checkpoint_id, h.seq) for h in task.sent(OUT[0])] == [
        (1, 0, 1),
        (1, 1, 1),
        (2, 0, 1),
        (2, 1, 1),
    ]


def test_a_rollback_forgets_that_inputs_have_ended() -> None:
    """It goes back to a position before the end: a commit must not say that the end was reached (A2b, R4)."""
    mixed = wire(replace(JOB, external_inputs={1: (IN.topic,)}), 1, 0)
    log = Log()
    a0, a1 = Producer(log, A0, fingerprint=mixed.fingerprint), Producer(log, A1, fingerprint=mixed.fingerprint)
    a0.rollback_marker(0)
    a1.rollback_marker(0)
    task = Scenario(log, mixed).start()
    a0.send(1, "rolled back")
    task.read()
    task.take_external("outside", ended=True)
    a0.rollback_marker(0)
    task.read()
    assert (task.position[IN], task.core.external.position[IN]) == (0, 0)
    a0.mark(1, at_end=True)
    a1.mark(1, at_end=True)
    task.read()
    assert [commit.at_end for commit in log.commits(mixed)] == [False, False]


def test_a_rollback_marker_below_what_is_committed_halts() -> None:
    """R < L(d) cannot be: the producer's changelog was cut, and a person must look (R4)."""
    task, a0, a1 = running()
    task.commit(1, a0, a1)
    task.commit(2, a0, a1)
    a0.rollback_marker(1)
    with pytest.raises(Halted, match="went back to checkpoint 1, but 2 is committed here: its changelog was cut"):
        task.read()


def test_a_generation_that_goes_back_to_another_checkpoint_than_before_halts() -> None:
    """Its claim was in the changelog once, so that was cut: what follows may have known numbers and other content."""
    task, a0, a1 = running()
    task.commit(1, a0, a1)
    a0.rollback_marker(1)
    task.read()
    again = Producer(task.log, A0)
    again.rollback_marker(0, generation=a0.generation)
    with pytest.raises(Halted, match="went back to checkpoint 0, but generation 2 has said 1 before: its changelog"):
        task.read()


def test_a_marker_of_an_open_checkpoint_with_fewer_records_than_are_processed_halts() -> None:
    """Its producer has begun again with the generation that it had, and its records are dropped as known (A6)."""
    task, a0, a1 = running()
    a0.send(1, "x", "y")
    task.commit(1, a0, a1)
    again = Producer(task.log, A0)
    again.rollback_marker(0, generation=a0.generation)
    again.send(1, "z")
    again.mark(2)
    with pytest.raises(Halted, match="ends checkpoint 2 before seq 2, but 2 is processed: its producer's changelog"):
        task.read()


def test_a_stale_rollback_marker_is_ignored() -> None:
    """Re-read, or late from a zombie: g' is not above the last generation announced in this channel (R4)."""
    task, a0, _ = running(generations=(3, 1))
    a0.send(1, "x")
    task.read()
    zombie = Producer(task.log, A0)
    zombie.rollback_marker(0, generation=2)
    task.log.append(T, task.log.rows[T][0][1])  # generation 3's, again
    task.read()
    a0.send(1, "y")
    task.read()
    assert (task.open, task.core.seen["stale rollback markers"]) == (["x", "y"], 2)


def test_a_producer_of_another_topology_halts() -> None:
    """A rollback marker that shows a fingerprint of none of the job's graphs comes from other code (1.2)."""
    task, *_ = running()
    other = Producer(task.log, A0, fingerprint=replace(JOB, job="k").fingerprint())
    other.rollback_marker(0, generation=2)
    with pytest.raises(Halted, match=r"a graph of fingerprint 0x\w+, and this code knows 0x.* start all with one"):
        task.read()


def test_a_rollback_marker_whose_rollback_history_lacks_itself_halts() -> None:
    """The rollback history ends with the incarnation that announces it: what else it says cannot be relied on (R2)."""
    task, *_ = running()
    task.log.append(T, encode_rollback_marker(A0, 2, 0, 1, JOB.fingerprint(), [RollbackEntry(1, 0)]))
    with pytest.raises(Halted, match="does not end with itself"):
        task.read()


# --- R4: skipping channels --------------------------------------------------------------------------------------------


def test_a_channel_stops_skipping_if_all_it_skipped_is_rolled_back() -> None:
    """The rollback marker sets its seq, and what follows is taken at once (R4)."""
    task, a0, a1 = running(early_bytes_max=0)
    a0.send(2, "rolled back")
    a0.rollback_marker(0)
    a0.send(1, "x")
    task.read()
    assert (task.core.inputs.totals.skipping, task.open) == (False, ["x"])
    task.commit(1, a0, a1)
    assert task.core.seen["seeks back"] == 0


def test_a_channel_keeps_skipping_if_some_of_it_counts() -> None:
    """Records skipped at or below R still have to be read: the seq stays until the seek back (R4)."""
    task, a0, a1 = running(early_bytes_max=0)
    a0.send(1, "x")
    a0.send(2, "skipped")
    a0.send(3, "rolled back")
    a0.rollback_marker(2)
    a0.send(3, "instead")
    task.read()
    assert task.core.inputs.totals.skipping
    for checkpoint_id in (1, 2, 3):
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
    task.read()
    assert task.state == ["x", "skipped", "instead"]
