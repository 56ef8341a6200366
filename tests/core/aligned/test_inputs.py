"""Admission of records by a task: their order, and the detection of loss (A3, A4, R5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.core import actions as do
from grete.errors import Halted
from grete.protocol.control import encode_joint_progress, encode_marker, encode_progress
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, A1, INNER, Producer, T, frame


def commit(task: Scenario, checkpoint_id: int, *producers: Producer) -> None:
    """Have all producers send the marker of a checkpoint, and the task read it."""
    for producer in producers:
        producer.mark(checkpoint_id)
    task.read()
    assert task.core.frozen == checkpoint_id


# --- A3: admission by seq ---------------------------------------------------------------------------------------------


def test_records_are_admitted_once_in_the_order_of_their_channel() -> None:
    """The next seq is taken, channel by channel; what was taken before is dropped (A3)."""
    task, a0, a1 = running()
    a0.send(1, "x", "y")
    a1.send(1, "z")
    task.read()
    task.log.append(T, task.log.rows[T][2][1])  # the first frame again
    task.read()
    assert task.open == ["x", "y", "z"]
    assert task.core.seen["known records dropped"] == 2


def test_the_known_prefix_of_a_frame_is_dropped() -> None:
    """A producer's retry may be cut differently: only what is new in a frame is processed (A3)."""
    task, a0, _ = running()
    a0.send(1, "x", "y")
    task.log.append(T, frame(A0, 1, 1, 2, "y", "z"))
    task.read()
    assert task.open == ["x", "y", "z"]
    assert [(action.skip) for action in task.all(do.Process)] == [0, 1]


def test_the_known_prefix_of_an_early_frame_is_dropped_when_it_is_processed() -> None:
    """The same holds for a frame that waits for its checkpoint (A3, A4)."""
    task, a0, a1 = running()
    a0.send(2, "x", "y")
    task.log.append(T, frame(A0, 1, 2, 2, "y", "z"))
    a0.mark(1)
    commit(task, 1, a1)
    assert task.open == ["x", "y", "z"]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 5)), max_size=12))
def test_however_frames_overlap_each_record_is_taken_once(cuts: list[tuple[int, int]]) -> None:
    """Frames that repeat or overlap add up to the channel's records, each once, in order; a gap halts (A3)."""
    task, *_ = running()
    known = 0
    for back, count in cuts:
        first = max(1, known + 1 - back)
        names = [f"r{seq}" for seq in range(first, first + count)]
        task.log.append(T, frame(A0, 1, 1, first, *names))
        known = max(known, first + count - 1)
    task.read()
    assert task.open == [f"r{seq}" for seq in range(1, known + 1)]
    task.log.append(T, frame(A0, 1, 1, known + 2, "after the gap"))
    with pytest.raises(Halted, match=f"expected seq {known + 1}: a record was lost"):
        task.read()


def test_a_marker_beyond_the_next_seq_halts() -> None:
    """A marker's Seq names the first record after it: beyond the next one, a record before it was lost (A3)."""
    task, a0, _ = running()
    a0.send(1, "x")
    task.log.append(T, encode_marker(A0, 1, 1, 3, at_end=False))
    with pytest.raises(
        Halted, match=r"j\.a\.t\.b\[0\] offset 3: .* expected seq 2: a record before the marker was lost"
    ) as lost:
        task.read()
    error = lost.value  # a caller reads no text
    assert (error.task, error.partition, error.offset, error.checkpoint_id) == (INNER.name, T, 3, 1)


def test_a_record_lost_before_a_rollback_marker_halts() -> None:
    """The records that a producer has committed lie before its rollback marker.

    So a gap is a loss, not a rollback (decision 0011).
    """
    task, a0, _ = running()
    a0.checkpoint_ids[T] = [0, 0, 0]  # three records that the log does not hold
    a0.rollback_marker(0)
    with pytest.raises(Halted, match="expected seq 1: a record before the rollback marker was lost"):
        task.read()


def test_a_invalid_marker_says_nothing() -> None:
    """A marker of a checkpoint that its producer has taken back proves nothing (R3, A6)."""
    task, a0, a1 = running()
    a0.rollback_marker(0)
    task.log.append(T, encode_marker(A0, 1, 1, 1, at_end=False))
    a1.mark(1)
    task.read()
    assert (task.core.frozen, task.core.seen["invalid markers dropped"]) == (0, 1)


def test_a_marker_below_the_newest_one_says_nothing_of_the_end() -> None:
    """One of a producer that slept comes behind those of its successor, whose inputs have ended since (A2b, A6)."""
    task, a0, a1 = running()
    a0.mark(2, at_end=True)
    task.log.append(T, encode_marker(A0, 1, 1, 1, at_end=False))
    a1.mark(2, at_end=True)
    task.read()
    assert [(commit.checkpoint_id, commit.at_end) for commit in task.log.commits(INNER)[-1:]] == [(2, True)]
    assert task.core.seen["duplicate markers"] == 1


def test_a_marker_behind_later_records_is_fine() -> None:
    """With the asynchronous commit later records stand before a marker: its Seq is below the next one (A3, A8)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.send(2, "early")
    commit(task, 1, a0, a1)
    assert (task.committed[1], task.open) == (["x"], ["early"])


def test_a_generation_that_was_never_announced_halts() -> None:
    """A frame of a generation whose rollback marker has not been read proves that the marker was lost (R2, A3)."""
    task, a0, _ = running()
    a0.generation = 2
    a0.send(1, "x")
    with pytest.raises(Halted, match="generation was never announced"):
        task.read()


def test_a_marker_of_a_generation_that_was_never_announced_halts() -> None:
    """Without the rollback marker that is before it, a marker proves nothing about what it follows (R2, A6)."""
    task, a0, _ = running()
    a0.send(1, "rolled back, if the rollback marker had not been lost")
    a0.generation = 2
    a0.mark(1)
    with pytest.raises(Halted, match=r"generation was never announced \(last: 1\)"):
        task.read()


def test_a_producer_that_does_not_belong_to_the_stream_halts() -> None:
    """Only the tasks of the producing stage write a stream (1.1)."""
    task, *_ = running()
    task.log.append(T, frame(7, 1, 1, 1, "x"))
    with pytest.raises(Halted, match="producer 7 generation 1 checkpoint 1 seq 1: this producer does not belong"):
        task.read()


# --- A4: checkpoint ids
# -------------------------------------------------------------------------------------------------------


def test_a_record_of_a_closed_checkpoint_that_is_new_halts() -> None:
    """A new record of a checkpoint that is closed here would be lost in silence (A4)."""
    task, a0, a1 = running()
    commit(task, 1, a0, a1)
    a0.send(1, "too late")
    with pytest.raises(Halted, match="new record of checkpoint 1, but 1 is closed"):
        task.read()


def test_a_known_record_of_a_closed_checkpoint_is_dropped() -> None:
    """A repeat of what is committed is no loss (A3, A4)."""
    task, a0, a1 = running()
    at = a0.send(1, "x")
    commit(task, 1, a0, a1)
    task.log.append(T, task.log.rows[T][at][1])
    task.read()
    assert (task.open, task.state) == ([], ["x"])


def test_early_records_wait_for_their_checkpoint() -> None:
    """A record above cur goes into the buffer of its checkpoint; those of cur are processed at once (A4)."""
    task, a0, a1 = running()
    a0.send(1, "1")
    a0.mark(1)
    a0.send(2, "2")
    a0.mark(2)
    a0.send(3, "3")
    a1.send(1, "also 1")
    task.read()
    assert task.open == ["1", "also 1"]
    commit(task, 1, a1)
    assert (task.committed[1], task.open) == (["1", "also 1"], ["2"])
    commit(task, 2, a1)
    assert (task.committed[2], task.open) == (["2"], ["3"])


def test_the_buffer_of_the_current_checkpoint_comes_before_the_stream() -> None:
    """After a freeze, what waited is processed before anything new is read (A4)."""
    task, a0, a1 = running()
    a0.mark(1)
    a0.send(2, "waited 1")
    a0.send(2, "waited 2")
    a1.mark(1)
    a0.send(2, "read after")
    task.read()
    assert task.open == ["waited 1", "waited 2", "read after"]


def test_checkpoint_ids_need_only_be_above_the_last_committed_checkpoint() -> None:
    """cur is L + 1: a checkpoint id between two boundaries is early or current by number alone (A1, A4)."""
    task, a0, a1 = running()
    commit(task, 1_000, a0, a1)
    a0.send(1_001, "current")
    a0.send(1_050, "early")
    task.read()
    assert task.open == ["current"]
    commit(task, 1_100, a0, a1)
    assert task.committed[1_100] == ["current", "early"]


def test_a_checkpoint_id_far_ahead_of_the_logs_clock_is_counted() -> None:
    """More than a minute ahead of its message's append time: reported, not refused (1.8 A1)."""
    task, a0, _ = running()
    a0.send(task.log.now_ms + 60_000, "fine")
    a0.send(task.log.now_ms + 60_001, "ahead")
    task.read()
    assert task.core.seen["checkpoint ids ahead of the log's clock"] == 1


# --- R5: positions ----------------------------------------------------------------------------------------------------


def test_a_message_before_the_position_halts() -> None:
    """A message prefetched before a seek must not be delivered after it (R5)."""
    task, a0, _ = running()
    a0.send(1, "x")
    task.read()
    with pytest.raises(Halted, match="received offset 2, expected 3 or later"):
        task.deliver(2, task.log.rows[T][2][1])


def test_a_message_beyond_the_position_must_continue_the_seq() -> None:
    """Offsets may have holes, seqs may not (R5, A3)."""
    task, *_ = running()
    task.deliver(7, frame(A0, 1, 1, 1, "x"))
    assert task.open == ["x"]
    with pytest.raises(Halted, match="expected seq 2"):
        task.deliver(9, frame(A0, 1, 1, 3, "z"))


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "0 bytes, need 25"),
        (frame(A0, 1, 1, 1, "x")[:30], "30 bytes"),
        (b"\x20" + frame(A0, 1, 1, 1, "x")[1:], "format version 2"),
        (b"\x1f" + frame(A0, 1, 1, 1, "x")[1:], "type 15"),
        (encode_marker(A0, 1, 1, 1, at_end=False) + b"!", "1 bytes after its end"),
        (encode_progress(A0, 1, 1, 1, 0, 0), "a progress message does not belong in this mode"),
        (encode_joint_progress(1, [(A0, 1, 1, 0)]), "a progress message does not belong in this mode"),
    ],
)
def test_what_is_not_ours_halts_with_its_place(value: bytes, text: str) -> None:
    """A damaged message or one of an unknown format is refused naming topic, partition and offset (1.2)."""
    task, *_ = running()
    task.log.append(T, value)
    with pytest.raises(Halted, match=text) as caught:
        task.read()
    assert "j.a.t.b[0] offset 2" in str(caught.value)


def test_errors_name_task_and_channel() -> None:
    """A halt says who read what from whom, so that a person can look (C5)."""
    task, *_ = running()
    task.log.append(T, frame(A1, 1, 5, 4, "x"))
    with pytest.raises(Halted) as caught:
        task.read()
    assert str(caught.value) == (
        "GRETE-H014: b-0: j.a.t.b[0] offset 2: producer 1 generation 1 checkpoint 5 seq 4: expected seq 1: a record "
        "was lost"
    )


def test_a_rollback_marker_that_is_read_again_still_implies_its_markers() -> None:
    """A commit below a rollback marker knows its generation.

    It must not forget what the marker proves: markers up to 2 (R2, decision 0013).
    """
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.rollback_marker(2, generation=2)
    a1.mark(1)
    task.read()
    assert task.core.frozen == 1
    after = task.successor().start()
    after.read()
    a1.mark(2)
    after.read()
    assert (after.core.frozen, after.core.seen["stale rollback markers"]) == (2, 1)
