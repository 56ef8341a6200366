"""Deterministic mode, stepped by hand: merging by logical time, and what comes again (D1, D3)."""

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.core import actions as do
from grete.core.deterministic.merge import Merge
from grete.errors import Halted
from grete.protocol.control import decode_progress
from grete.protocol.envelope import MessageType, decode_header
from tests.core.deterministic.scenario import ALL, Logical, inner
from tests.core.streams import A0, A1, INNER, OUT, SOURCE, Log, Producer, T

# --- merging by logical time (D1) -------------------------------------------------------------------------------------


def test_a_record_waits_until_every_channel_has_passed_it() -> None:
    """A head goes when all other channels have said that nothing at or below its key is still to come (D1)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0))
    task.read()
    assert task.processed == []
    in_memory, on_disk = task.core.inputs.waiting_bytes
    assert (in_memory > 0, on_disk) == (True, 0)
    a1.progress(99)
    task.read()
    assert task.processed == []
    a1.progress(100)
    task.read()
    assert task.processed == [("x", 100, A0)]


def test_what_waits_for_other_channels_is_not_processed() -> None:
    """By the first message that is still to be processed, producers see how far the task is (B1)."""
    for early_memory_bytes_max in (1, 1_000):
        task, a0, a1 = inner(early_memory_bytes_max=early_memory_bytes_max)
        partition = task.core.task.channels[0][1]
        task.read()
        before = task.core.inputs.processed_offset(partition)
        assert before == task.core.merge.position[partition]
        a0.send(("x", 100, A0))
        a0.send(("y", 101, A0))
        task.read()
        assert task.core.inputs.processed_offset(partition) == before < task.core.merge.position[partition]
        a1.progress(101)
        a0.progress(102)
        task.read()
        task.read()  # what was skipped
        assert task.names == ["x", "y"]
        assert task.core.inputs.processed_offset(partition) == task.core.merge.position[partition]


def test_much_input_closes_a_checkpoint_before_its_time() -> None:
    """A task that has read more of its streams than its bound since the last commit closes early (K3)."""
    task, a0, a1 = inner(untrimmed_bytes_max=300, checkpoint_interval_ms=600_000)
    before = task.core.frozen
    for t in range(100, 120):
        a0.progress(t)
        a1.progress(t)
    task.read()
    assert task.core.frozen > before
    assert task.core.seen["checkpoints closed by untrimmed input"] >= 1


def test_equal_times_go_by_source_then_channel() -> None:
    """The order is total: (t, source, channel, seq), whatever came first (D1)."""
    task, a0, a1 = inner()
    a1.send(("second", 100, 7), ("fourth", 100, 8))
    a0.send(("first", 100, 7), ("third", 100, 8))
    task.read()
    assert task.names == ["first", "second", "third"]  # a0 may bring another one of (100, 8)
    a0.progress(100)
    task.read()
    assert task.names == ["first", "second", "third", "fourth"]


def test_progress_messages_are_forwarded_when_all_up_to_them_is_processed() -> None:
    """An inner task announces what its inputs have announced, and no more than what it has processed (D1)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0))
    a1.progress(250)
    task.read()
    # another one of 100 may come
    assert (task.progress_messages(OUT[0]), task.progress_messages(OUT[1])) == ([99], [99])
    a0.progress(200)
    task.read()
    assert task.progress_messages(OUT[1]) == [99, 200]
    assert task.frames(OUT[0]) == [(1, [100])]


def test_timers_fire_before_downstream_learns_of_their_time() -> None:
    """Time passes in the task first: what its timers send lies above the last progress message (D1)."""
    task, a0, a1 = inner()
    task.timer = 150
    a0.progress(100)
    a1.progress(100)
    task.read()
    task.uptos.clear()
    a0.progress(149)
    a1.progress(149)
    task.read()
    assert task.uptos == []
    task.hold = {do.ProcessRecords}
    a0.progress(200)
    a1.progress(200)
    task.read()
    assert task.progress_messages(OUT[0])[-1] == 149
    task.release()
    assert (task.uptos, task.progress_messages(OUT[0])[-1]) == ([200], 200)


Frames = list[list[list[tuple[str, int, int]]]]


@st.composite
def channels(draw: st.DrawFn) -> Frames:
    """Return for each of two channels frames of records, in order of time."""
    each = []
    for channel in range(2):
        keys = sorted(draw(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), max_size=12)))
        records = [(f"{channel}.{number}", *key) for number, key in enumerate(keys)]
        cuts = [0, *sorted(draw(st.sets(st.integers(1, 11), max_size=4))), len(records)]
        each.append([records[a:b] for a, b in pairwise(cuts) if records[a:b]])
    return each


@given(frames=channels(), turns=st.lists(st.booleans(), max_size=20), together=st.booleans())
def test_the_order_does_not_depend_on_arrival(frames: Frames, turns: list[bool], together: bool) -> None:
    """Records are processed in the order of their keys, however frames are cut and whichever comes first (D1)."""
    task, *writers = inner(early_memory_bytes_max=1 << 20)
    left = [list(each) for each in frames]
    for turn in [*turns, *[False] * 12, *[True] * 12]:
        if left[turn]:
            writers[turn].send(*left[turn].pop(0))
            if not together:
                task.read()
    for writer in writers:
        writer.progress(1_000)
    task.read()
    keyed = [(t, s, channel, n) for channel, each in enumerate(frames) for n, (_, t, s) in enumerate(chain(*each))]
    assert task.names == [f"{channel}.{number}" for _, _, channel, number in sorted(keyed)]


def test_beyond_the_bound_a_channel_skips_and_is_read_again() -> None:
    """Queues are bounded: what does not fit is read again once the channel's queue is empty (1.8 D1)."""
    task, a0, a1 = inner(early_memory_bytes_max=1)
    first, second = a0.send(("x", 100, A0)), a0.send(("y", 110, A0))
    a0.progress(200)
    task.read()
    assert task.core.merge.channels[0].skip_offset == second
    assert task.core.seen["frames skipped"] == 1
    a1.send(("z", 105, A1))
    a1.progress(200)
    task.read()
    assert (first, task.names) == (0, ["x"])
    seeks = [action for action in task.done if isinstance(action, do.Seek)]
    assert seeks[-1] == do.Seek(T, second)
    task.read()
    assert task.names == ["x", "z", "y"]


def test_a_producer_that_goes_back_in_time_halts() -> None:
    """A new record at or below what its channel has announced breaks the order of those before it (D1)."""
    task, a0, _ = inner()
    a0.progress(200)
    a0.send(("x", 200, A0))
    with pytest.raises(Halted, match="went back in time"):
        task.read()


@pytest.mark.parametrize("lost", ["frame", "progress message"])
def test_a_lost_record_halts(lost: str) -> None:
    """A gap in the seqs of a channel shows before a frame and before a progress message (D3)."""
    task, a0, _ = inner()
    a0.next_seq = 3
    a0.send(("x", 100, A0)) if lost == "frame" else a0.progress(100)
    with pytest.raises(Halted, match="expected seq 1: a record"):
        task.read()


def test_messages_of_aligned_mode_halt() -> None:
    """A frame without logical time comes from a task that is not deterministic (D6)."""
    task, _, _ = inner()
    Producer(task.log, A0).send(1, "x")
    with pytest.raises(Halted, match="no logical time"):
        task.read()


# --- what comes again (D3) --------------------------------------------------------------------------------------------


def test_records_that_come_again_are_dropped() -> None:
    """A restarted producer makes the same again; only what is new counts, however it is cut (D3)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 110, A0))
    after = a0.again()
    after.send(("x", 100, A0))
    after.send(("y", 110, A0), ("z", 120, A0))
    a1.progress(300)
    task.read()
    assert task.names == ["x", "y", "z"]
    assert task.core.seen["known records dropped"] == 2


def test_a_record_that_comes_again_differently_halts_naming_both() -> None:
    """A task that was not deterministic is caught, with the record and both of its checkpoints (D3)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 110, A0))
    after = a0.again()
    after.send(("x", 100, A0), ("other", 110, A0))
    a1.progress(300)
    with pytest.raises(Halted, match="record seq 2 was received before with value b'y', now b'other'"):
        task.read()


def test_a_digest_that_differs_halts_after_a_restart() -> None:
    """A restarted reader has the digest of what it has processed, not the records: it halts all the same (D3)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 110, A0))
    a0.progress(300)
    a1.progress(300)
    task.read()
    task.tick(100)
    after = a0.again()
    after.send(("x", 100, A0), ("other", 110, A0))
    after.send(("z", 400, A0))
    reader = task.successor().start()
    with pytest.raises(Halted, match="up to seq 2 are not what was received before"):
        reader.read()


def test_a_merge_without_records_takes_nothing() -> None:
    """Nothing was announced: nothing goes, and no time has passed."""
    assert Merge("t", INNER.channels, 1).take() == ([], -1)


def test_sends_carry_seqs_and_advances_hold() -> None:
    """Frames and progress messages of a channel carry its next seq, so that what is lost shows (D3)."""
    task = Logical(Log(), SOURCE).start()
    task.take("x", "y")
    task.tick(20)
    messages = [(decode_header(value), value) for _, value in task.log.rows[SOURCE.outputs[0]]]
    last = [decode_progress(value) for header, value in messages if header.type is MessageType.PROGRESS][-1]
    assert (last.header.seq, last.source) == (3, ALL)
