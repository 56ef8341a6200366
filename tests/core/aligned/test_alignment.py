"""Alignment (A6), processing during a commit (A8), early closes (A9); the early buffer: test_early_bound.py."""

from grete.core import actions as do
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.protocol.envelope import MessageType
from grete.protocol.ids import TopicPartition
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, A1, INNER, OUT, Log, Producer, T

# --- A6: the alignment ------------------------------------------------------------------------------------------------


def test_the_alignment_is_a_set_not_a_count() -> None:
    """Two markers of one producer are not one of each: every channel of the topology must have sent its own (A6)."""
    task, a0, a1 = running()
    a0.mark(1)
    a0.mark(1)
    a0.mark(2)
    task.read()
    assert list(task.committed) == [0]
    a1.mark(1)
    task.read()
    assert list(task.committed) == [0, 1]


def test_the_set_has_every_partition_of_every_stream() -> None:
    """One producer's marker counts in its own partition: the alignment waits for the others (A6)."""
    streams = (Stream("j.a.s3.b", 0, 1, 1), Stream("j.a.s4.b", 0, 1, 1))
    task_wiring = wire(Topology("j", (Stage("a", 0, 1), Stage("b", 1, 1)), streams), 1, 0)
    s3, s4 = (TopicPartition(stream.topic, 0) for stream in streams)
    log = Log()
    producer = Producer(log, A0, s3, s4, fingerprint=task_wiring.fingerprint)
    producer.rollback_marker(0)
    task = Scenario(log, task_wiring).start()
    producer.mark(1, s3)
    task.read()
    assert task.core.frozen == 0
    producer.mark(1, s4)
    task.read()
    assert task.core.frozen == 1


def test_markers_are_cumulative() -> None:
    """Marker 3 says what 1 and 2 would have said: a commit of several checkpoints sends one (A6)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.send(3, "y")
    a0.mark(3)
    a1.mark(1)
    a1.mark(3)
    task.read()
    assert task.committed == {0: [], 1: ["x"], 3: ["y"]}


def test_a_commit_may_cover_several_checkpoints() -> None:
    """The alignment ends when the least marker reaches cur, and the commit is of that least marker (A6)."""
    task, a0, a1 = running()
    a0.send(1, "1")
    a0.send(2, "2")
    a0.send(5, "5")
    a0.mark(5)
    a1.mark(4)
    task.read()
    assert task.committed == {0: [], 4: ["1", "2"]}
    assert task.log.commits(INNER)[-1].previous == 0
    a1.mark(5)
    task.read()
    assert task.committed == {0: [], 4: ["1", "2"], 5: ["5"]}


def test_all_checkpoints_up_to_the_alignment_are_drained() -> None:
    """Buffers drain checkpoint by checkpoint, lowest first, before the commit.

    To delete them would lose records (1.8 A6).
    """
    task, a0, a1 = running()
    a0.send(3, "third")
    a1.send(1, "first")
    a1.send(2, "second")
    a0.mark(3)
    a1.mark(3)
    task.read()
    assert task.committed == {0: [], 3: ["first", "second", "third"]}


def test_a_commit_resumes_at_what_it_does_not_include() -> None:
    """Resume is the first record not included, and no later than a marker beyond the checkpoint that was read (A7)."""
    task, a0, a1 = running()
    a0.mark(1)
    marker = len(task.log.rows[T])
    a0.mark(2)
    early = a0.send(3, "early")
    a1.mark(1)
    task.read()
    [commit] = task.log.commits(INNER)[-1].inputs
    assert [(c.producer, c.recovery_offset) for c in commit.channels] == [(A0, marker), (A1, early + 2)]
    assert commit.resume == marker
    after = task.successor().start()
    a1.mark(2)
    after.read()
    assert (after.core.frozen, after.open) == (2, ["early"])


# --- A8: processing goes on -------------------------------------------------------------------------------------------


def committing() -> tuple[Scenario, Producer, Producer]:
    """Return a task whose commit of checkpoint 1 is on its way to the log."""
    task, a0, a1 = running()
    task.hold.add(do.AppendChangelog)
    a0.send(1, "x")
    task.emit(OUT[0], "out 1")
    a0.mark(1)
    a1.mark(1)
    task.read()
    assert task.holding(do.AppendChangelog).generation == 1
    return task, a0, a1


def test_records_of_the_next_checkpoint_are_processed_during_a_commit() -> None:
    """From the freeze on, the fresh write batch takes what comes; the frozen one is committed as it was (A8)."""
    task, a0, _ = committing()
    a0.send(2, "y")
    task.read()
    assert (task.frozen, task.open) == (["x"], ["y"])
    task.release()
    assert (task.committed[1], task.open) == (["x"], ["y"])


def test_outputs_after_the_freeze_carry_the_next_checkpoint() -> None:
    """An output before the freeze belongs to V, a later one to V + 1, even before V's marker (A8)."""
    task, a0, _ = committing()
    a0.send(2, "y")
    task.read()
    task.emit(OUT[0], "out 2", "out 3")
    task.flush()
    task.release()
    sent = [(header.type, header.checkpoint_id, header.seq) for header in task.sent(OUT[0])[1:]]
    frame_type, marker = MessageType.FRAME, MessageType.MARKER
    assert sent == [(frame_type, 1, 1), (frame_type, 2, 2), (marker, 1, 2)]


def test_a_alignment_that_completes_during_a_commit_waits() -> None:
    """One commit in flight; the next begins when it has ended, and covers what was reached meanwhile (A8)."""
    task, a0, a1 = committing()
    for checkpoint_id in (2, 3):
        a0.send(checkpoint_id, str(checkpoint_id))
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
    task.read()
    assert [freeze.checkpoint_id for freeze in task.all(do.Freeze)] == [0, 1]
    task.release()
    assert [freeze.checkpoint_id for freeze in task.all(do.Freeze)] == [0, 1, 3]
    assert task.committed == {0: [], 1: ["x"], 3: ["2", "3"]}


def test_the_first_record_of_a_checkpoint_is_not_early_after_the_freeze() -> None:
    """cur follows the freeze, not the end of the commit: else every record would go through the buffer (A1, A8)."""
    task, a0, _ = committing()
    a0.send(2, "y")
    task.read()
    assert task.core.seen["early records"] == 0


# --- A9: the write batch's bound --------------------------------------------------------------------------------------


def three_checkpoints(uncommitted_state_bytes_max: int) -> Scenario:
    """Return a task that had to align three checkpoints at once, with two records (20 bytes) in each."""
    task, a0, a1 = running(uncommitted_state_bytes_max=uncommitted_state_bytes_max)
    for checkpoint_id in (1, 2, 3):
        a0.send(checkpoint_id, f"{checkpoint_id}a", f"{checkpoint_id}b")
    a0.mark(3)
    a1.mark(3)
    task.read()
    return task


def test_near_its_bound_a_write_batch_is_closed_between_checkpoints() -> None:
    """At half the bound of the write batch, the greatest drained checkpoint is committed (A9).

    It does not wait for the alignment's.
    """
    task = three_checkpoints(uncommitted_state_bytes_max=38)
    assert task.committed == {0: [], 1: ["1a", "1b"], 2: ["2a", "2b"], 3: ["3a", "3b"]}


def test_far_from_its_bound_all_checkpoints_are_one_commit() -> None:
    """It is the alignment's checkpoint, unless the write batch nears its bound (1.8 A6)."""
    assert list(three_checkpoints(uncommitted_state_bytes_max=200).committed) == [0, 3]
    assert list(three_checkpoints(uncommitted_state_bytes_max=78).committed) == [0, 2, 3]


def test_a_checkpoint_is_never_cut() -> None:
    """A checkpoint is drained whole before it is closed, however small the bound is (A9, A6)."""
    task, a0, a1 = running(uncommitted_state_bytes_max=2)
    a0.send(2, "a")
    a0.send(2, "b")
    a0.mark(2)
    a1.send(2, "c")
    a1.mark(2)
    task.read()
    assert task.committed[2] == ["a", "b", "c"]


def test_nothing_waiting_is_lost_when_a_write_batch_is_closed_early() -> None:
    """Records beyond the early close stay in their buffer and belong to the next checkpoints (A9, 1.8 A6)."""
    task = three_checkpoints(uncommitted_state_bytes_max=38)
    assert task.state == ["1a", "1b", "2a", "2b", "3a", "3b"]
    markers = [header.checkpoint_id for header in task.sent(OUT[0]) if header.type is MessageType.MARKER]
    assert markers == [1, 2, 3]
