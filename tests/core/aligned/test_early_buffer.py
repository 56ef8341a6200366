"""The early buffer: order, budgets, and what a rollback marker takes out (A4, A5)."""

from hypothesis import given
from hypothesis import strategies as st

from grete.core.actions import Process, Spill
from grete.core.aligned.early_buffer import EarlyBuffer, EarlyFrame
from grete.protocol.envelope import Header, MessageType
from grete.protocol.ids import TopicPartition

P = TopicPartition("t", 0)
FRAMES = st.lists(st.tuples(st.integers(2, 6), st.integers(1, 40)), max_size=30)  # (checkpoint, size)


def early(
    checkpoint_id: int, size: int = 10, *, offset: int = 0, generation: int = 1, count: int = 1, skip: int = 0
) -> EarlyFrame:
    """Return an early frame."""
    header = Header(MessageType.FRAME, 1, generation, checkpoint_id, 1)
    return EarlyFrame(0, P, offset, header, count, skip, size, bytes(size))


def popped(buffer: EarlyBuffer, checkpoint_max: int = 1_000) -> list[EarlyFrame]:
    """Take out all frames up to a checkpoint."""
    frames = []
    while (frame := buffer.pop(checkpoint_max)) is not None:
        frames.append(frame)
    return frames


@given(FRAMES, st.integers(0, 7))
def test_frames_come_out_by_checkpoint_then_by_arrival(frames: list[tuple[int, int]], checkpoint_max: int) -> None:
    """Lowest checkpoint first, within it in the order of arrival, nothing beyond the checkpoint asked for (A4)."""
    buffer = EarlyBuffer(1_000, 10_000)
    for offset, (checkpoint_id, size) in enumerate(frames):
        buffer.add(early(checkpoint_id, size, offset=offset))
    expected = sorted(
        (checkpoint_id, offset) for offset, (checkpoint_id, _) in enumerate(frames) if checkpoint_id <= checkpoint_max
    )
    assert [(frame.header.checkpoint_id, frame.offset) for frame in popped(buffer, checkpoint_max)] == expected
    rest = [checkpoint_id for checkpoint_id, _ in frames if checkpoint_id > checkpoint_max]
    assert buffer.least_checkpoint() == min(rest, default=None)


@given(FRAMES, st.integers(0, 200), st.integers(0, 400), st.integers(1, 7))
def test_bytes_are_accounted_exactly(frames: list[tuple[int, int]], memory: int, bound: int, rolled_back: int) -> None:
    """The buffer knows its bytes after any adds, pops and drops, and keeps to both budgets (A5)."""
    buffer = EarlyBuffer(memory, bound)
    for checkpoint_id, size in frames:
        if buffer.fits(size):
            buffer.add(early(checkpoint_id, size))
        assert buffer.bytes <= bound
        assert buffer.memory_bytes <= memory
        assert buffer.bytes == sum(frame.size for frame in buffer)
    buffer.drop(lambda header: header.checkpoint_id > rolled_back)
    assert buffer.bytes == sum(frame.size for frame in buffer)
    popped(buffer)
    assert (buffer.bytes, buffer.memory_bytes, buffer.least_checkpoint()) == (0, 0, None)


def test_what_is_beyond_the_memory_budget_is_spilled_under_its_key() -> None:
    """The frame keeps its place in the order and only its key; its payload is in the action (A4)."""
    buffer = EarlyBuffer(15, 100)
    first, second = early(2), early(2)
    payload = second.value
    assert buffer.add(first) is None
    spill = buffer.add(second)
    assert spill == Spill(second.key, payload or b"")
    assert (first.value, second.value, buffer.memory_bytes, buffer.bytes) == (bytes(10), None, 10, 20)
    assert [frame.process().value for frame in popped(buffer)] == [bytes(10), None]


def test_memory_freed_is_used_again() -> None:
    """A spill is no state of its own: the next frame stays in memory when there is room (A4)."""
    buffer = EarlyBuffer(10, 100)
    buffer.add(early(2))
    assert buffer.add(early(3)) is not None
    buffer.pop(2)
    assert buffer.add(early(3)) is None


def test_keys_are_never_used_twice() -> None:
    """Also after a clear: a spilled payload of a former life cannot be taken for another (A5)."""
    buffer = EarlyBuffer(0, 1_000)
    keys = []
    for _ in range(3):
        frame = early(2)
        buffer.add(frame)
        keys.append(frame.key)
        buffer.clear()
    assert len(set(keys)) == 3


def test_a_bound_of_zero_fits_nothing() -> None:
    """That is the mode in which early records are always skipped (A5)."""
    assert not EarlyBuffer(0, 0).fits(1)
    assert EarlyBuffer(0, 10).fits(10)
    assert not EarlyBuffer(0, 10).fits(11)


def test_rolled_back_frames_are_dropped_and_counted_by_record() -> None:
    """A rollback marker takes out what it rolls back; the others keep their order (R4)."""
    buffer = EarlyBuffer(100, 100)
    for offset, generation in enumerate((1, 2, 1, 2)):
        buffer.add(early(3, generation=generation, offset=offset, count=5))
    buffer.add(early(4, generation=1, count=7))
    assert buffer.drop(lambda header: header.generation == 1) == 17
    assert [frame.offset for frame in popped(buffer)] == [1, 3]


def test_a_frame_says_how_to_process_it() -> None:
    """Partition, offset, payload, key and the known prefix go on to the driver (A3)."""
    frame = early(2, offset=9, count=4, skip=3)
    assert frame.process() == Process(P, 9, bytes(10), 0, 3)
