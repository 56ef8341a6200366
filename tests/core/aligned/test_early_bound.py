"""The bound of the early buffer: what goes to disk, what is skipped and read again (A5)."""

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from grete.core import actions as do
from tests.core.scenario import running
from tests.core.streams import A0, A1, T, frame

ONE_FRAME = len(frame(A0, 1, 1, 1, "x"))


def test_beyond_the_memory_budget_frames_go_to_disk() -> None:
    """Early frames stay in memory up to a budget, then only their keys: what comes back is the same (A4)."""
    task, a0, a1 = running(early_memory_bytes_max=ONE_FRAME)
    for name in "xyz":
        a0.send(2, name)
    task.read()
    assert len(task.all(do.Spill)) == 2
    in_memory, on_disk = task.core.inputs.waiting_bytes
    assert on_disk == 2 * in_memory > 0
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
    [commit] = [run.frozen.inputs for run in [task.core.commits.pending] if run is not None]
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
