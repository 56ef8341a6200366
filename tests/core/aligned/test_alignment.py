"""Alignment: the bounded early buffer (A5), the alignment (A6), processing during a commit (A8), early closes (A9)."""

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from framework.core import actions as do
from framework.core.task_topology import wire
from framework.core.topology import Stage, Stream, Topology
from protocol.envelope import MessageType
from protocol.ids import TopicPartition
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, A1, INNER, OUT, Log, Producer, T, frame

ONE_FRAME = len(frame(A0, 1, 1, 1, "x"))


# --- A5: the bound of the early buffer --------------------------------------------------------------------------------


def test_beyond_the_memory_budget_frames_go_to_disk() -> None:
    """Early frames stay in memory up to a budget, then only their keys: what comes back is the same (A4)."""
    task, a0, a1 = running(early_memory_bytes_max=ONE_FRAME)
    for name in "xyz":
        a0.send(2, name)
    task.read()
    assert len(task.all(do.Spill)) == 2
    a0.mark(1)
    a1.mark(1)
    task.read()
    assert task.open == ["x", "y", "z"]
    assert [action.value is None for action in task.all(do.Process)] == [False, True, True]


def test_rolled_back_frames_on_disk_are_forgotten() -> None:
    """A rollback marker takes them out of the buffer, and their payloads out of the spill; the others stay (R4, A5)."""
    task, a0, a1 = running(early_memory_bytes_max=0)
    for name in ("rolled back 1", "rolled back 2"):
        a0.send(2, name)
    a1.send(2, "stays")
    task.read()
    a0.rollback_marker(1)
    task.read()
    keys = [spill.key for spill in task.all(do.Spill)]
    assert task.all(do.DropSpilled) == [do.DropSpilled(tuple(keys[:2]))]
    a1.mark(1)
    task.read()
    assert task.open == ["stays"]


def test_a_record_that_does_not_fit_is_skipped_and_read_again_at_the_freeze() -> None:
    """Skipped: seq stays, later records of the channel are skipped too; at the freeze the task goes back there (A5)."""
    task, a0, a1 = running(early_bytes_max=ONE_FRAME)
    a0.send(1, "0")
    first = a0.send(2, "x")
    a0.send(2, "y")
    a0.send(2, "z")
    a1.send(1, "other channel")
    task.read()
    assert (task.open, task.core.seen["early frames skipped"]) == (["0", "other channel"], 1)
    a0.mark(1)
    a1.mark(1)
    task.read()
    assert task.committed[1] == ["0", "other channel"]
    assert [seek.offset for seek in task.all(do.Seek)][-1] == first
    assert task.open == ["x", "y", "z"]
    assert task.core.seen["seeks back"] == 1


def test_what_is_early_or_skipped_is_not_processed() -> None:
    """By the first message that is still to be processed, producers see how far the task is (B1)."""
    for early_bytes_max in (0, ONE_FRAME):
        task, a0, a1 = running(early_bytes_max=early_bytes_max)
        partition = task.core.task.channels[0][1]
        a0.send(1, "0")
        task.read()
        assert task.core.inputs.processed_offset(partition) == task.core.inputs.position[partition]
        first = a0.send(2, "x")
        a0.send(2, "y")
        task.read()
        assert task.core.inputs.processed_offset(partition) == first < task.core.inputs.position[partition]
        a0.mark(1)
        a1.mark(1)
        task.read()
        assert task.open == ["x", "y"]
        assert task.core.inputs.processed_offset(partition) == task.core.inputs.position[partition]


def test_a_skipping_channel_skips_even_what_would_fit() -> None:
    """All later records of the channel are skipped, whatever their checkpoint id and size: order is kept (A5)."""
    task, a0, a1 = running(early_bytes_max=ONE_FRAME + 1)
    a0.send(3, "large enough not to fit")
    a0.send(3, "y")
    task.read()
    assert (task.open, task.core.inputs.early.bytes) == ([], 0)
    for checkpoint_id in (1, 2):
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
    task.read()
    assert task.open == ["large enough not to fit", "y"]


def test_markers_of_a_skipping_channel_prove_less() -> None:
    """Such markers prove only what lies below the first skipped checkpoint id.

    A checkpoint with skipped records is not closed (A5).
    """
    task, a0, a1 = running(early_bytes_max=0)
    for checkpoint_id in (1, 2, 3):
        a0.send(checkpoint_id, str(checkpoint_id))
        a0.mark(checkpoint_id)
    for checkpoint_id in (1, 2, 3):
        a1.mark(checkpoint_id)
    task.read()
    assert task.committed == {0: [], 1: ["1"], 2: ["2"], 3: ["3"]}
    assert task.core.seen["seeks back"] >= 1


def test_the_gap_check_of_markers_rests_while_a_channel_skips() -> None:
    """A marker behind skipped records has a Seq beyond the channel's: that is no loss (1.8 A3)."""
    task, a0, a1 = running(early_bytes_max=0)
    a0.send(2, "x")
    a0.mark(2)
    task.read()
    a0.mark(1)
    a1.mark(1)
    task.read()
    assert (task.core.frozen, task.open) == (1, ["x"])


def test_the_seek_back_is_to_the_positions_of_the_commit() -> None:
    """Positions, seqs and markers become those of the commit just frozen, as after a restart (A5)."""
    task, a0, a1 = running(early_bytes_max=0)
    task.hold.add(do.AppendChangelog)
    a0.send(2, "skipped")
    a0.mark(1)
    a1.send(1, "x")
    a1.mark(1)
    task.read(count=4)
    inputs = task.core.inputs
    [commit] = [run.inputs for run in [task.core.commits.pending] if run is not None]
    assert inputs.position == {T: commit[0].resume}
    assert [(c.producer, c.seq) for c in commit[0].channels] == [(A0, 0), (A1, 1)]
    assert [(c.next_seq, c.marker) for c in inputs.channels.values()] == [(1, 1), (2, 1)]
    assert task.all(do.ClearSpill)
    task.release()
    task.read()
    assert (task.committed[1], task.open) == (["x"], ["skipped"])


@settings(max_examples=50)
@given(
    checkpoint_ids=st.tuples(*[st.lists(st.integers(1, 4), max_size=6).map(sorted)] * 2),
    turns=st.randoms(use_true_random=False),
    bound=st.sampled_from([0, ONE_FRAME, 3 * ONE_FRAME, 1 << 20]),
    memory=st.sampled_from([0, 1 << 20]),
)
def test_each_checkpoint_holds_exactly_its_records(
    checkpoint_ids: tuple[list[int], list[int]], turns: Random, bound: int, memory: int
) -> None:
    """For any interleaving of two producers and any bound, a commit adds its checkpoints' records once (A4-A6)."""
    task, *producers = running(early_bytes_max=bound, early_memory_bytes_max=memory)
    todo = [
        sorted([*((each, "send") for each in of), *((each, "then mark") for each in range(1, 5))])[::-1]
        for of in checkpoint_ids
    ]
    named: list[tuple[int, str]] = []
    while any(todo):
        number = turns.choice([index for index, queue in enumerate(todo) if queue])
        checkpoint_id, what = todo[number].pop()
        if what == "send":
            named.append((checkpoint_id, f"{number}.{len(named)}"))
            producers[number].send(*named[-1])
        else:
            producers[number].mark(checkpoint_id)
    task.read()
    assert task.core.frozen == 4
    for previous, checkpoint_id in pairwise(task.committed):
        expected = [name for each, name in named if previous < each <= checkpoint_id]
        assert sorted(task.committed[checkpoint_id]) == sorted(expected)
    for of in "01":
        assert [name for name in task.state if name[0] == of] == [name for _, name in named if name[0] == of]


# --- A6: the alignment
# --------------------------------------------------------------------------------------------------


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
    """What was sent before the freeze is of V, what is sent after it of V + 1, also before V's marker (A8)."""
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


# --- A9: the write batch's bound
# --------------------------------------------------------------------------------------------


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
    """When the write batch is half full, the commit is of the greatest drained checkpoint (A9).

    It does not wait for the alignment's.
    """
    task = three_checkpoints(uncommitted_state_bytes_max=38)
    assert task.committed == {0: [], 1: ["1a", "1b"], 2: ["2a", "2b"], 3: ["3a", "3b"]}


def test_far_from_its_bound_all_checkpoints_are_one_commit() -> None:
    """It is the alignment's checkpoint, unless the write batch nears its bound (1.8 A6)."""
    assert list(three_checkpoints(uncommitted_state_bytes_max=200).committed) == [0, 3]
    assert list(three_checkpoints(uncommitted_state_bytes_max=78).committed) == [0, 2, 3]


def test_a_checkpoint_is_never_cut() -> None:
    """However small the bound, a checkpoint is drained whole before it is closed (A9, A6)."""
    task, a0, a1 = running(uncommitted_state_bytes_max=2)
    a0.send(2, "a")
    a0.send(2, "b")
    a0.mark(2)
    a1.send(2, "c")
    a1.mark(2)
    task.read()
    assert task.committed[2] == ["a", "b", "c"]


def test_nothing_waiting_is_lost_when_a_write_batch_is_closed_early() -> None:
    """What lies beyond the early close stays in its buffer and is part of the next checkpoints (A9, 1.8 A6)."""
    task = three_checkpoints(uncommitted_state_bytes_max=38)
    assert task.state == ["1a", "1b", "2a", "2b", "3a", "3b"]
    markers = [header.checkpoint_id for header in task.sent(OUT[0]) if header.type is MessageType.MARKER]
    assert markers == [1, 2, 3]
