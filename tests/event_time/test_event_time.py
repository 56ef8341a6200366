"""Event time from the progress of each source (E1, E2, E4)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.core.graph.task_topology import wire
from grete.execution.inputs.watermarks import IdleInputs
from grete.execution.limits import WATERMARK_MS
from grete.execution.timing.event_time import AFTER_ALL, BEFORE_ALL, OUTSIDE, EventTime, TimeSource
from grete.protocol.control import decode_watermark
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.ids import TopicPartition
from tests.core.streams import A0, A1, JOB, OUT, Producer
from tests.execution.driving import Driven

P, Q, S = TopicPartition("p", 0), TopicPartition("q", 0), TopicPartition("s", 3)
A, B = (1, S), (2, S)
FROM_P, FROM_Q = (OUTSIDE, P), (OUTSIDE, Q)
SOURCES: tuple[TimeSource, ...] = (A, B, FROM_P, FROM_Q)


def read(time: EventTime, source: TimeSource, *timestamps: int) -> int:
    """Process records as the loops do; return the time after them."""
    time.begin(source)
    for timestamp in timestamps:
        time.highest = max(time.highest, timestamp)
        time.now = max(time.now, min(timestamp, time.ceiling))
    time.end(source)
    return time.now


def test_time_is_the_least_that_a_source_has_reached() -> None:
    """A partition has its highest timestamp, a channel its watermark; one that has nothing yet holds all back."""
    time = EventTime([A], [FROM_P])
    assert read(time, FROM_P, 5, 100) == BEFORE_ALL
    time.watermark(A, 50, idle=False)
    assert time.now == 50
    time.watermark(A, 200, idle=False)
    assert time.now == 100


def test_records_of_one_partition_alone_move_time_one_by_one() -> None:
    """With one source each record moves time, also back and forth inside of a batch: never back."""
    time = EventTime([], [FROM_P])
    assert [read(time, FROM_P, at) for at in (5, 3, 8)] == [5, 5, 8]


def test_records_of_a_channel_do_not_move_time() -> None:
    """Only its producer knows what is still to come."""
    time = EventTime([A], [])
    assert read(time, A, 5, 100) == BEFORE_ALL


def test_an_idle_source_does_not_count_until_its_next_record() -> None:
    """It holds no task back; when it comes again it does, and time does not go back."""
    time = EventTime([], [FROM_P, FROM_Q])
    read(time, FROM_P, 100)
    time.set_idle(FROM_Q)
    assert (time.now, time.idle) == (100, False)
    assert read(time, FROM_Q, 50) == 100
    assert read(time, FROM_P, 300) == 100
    assert read(time, FROM_Q, 200) == 200


def test_if_all_are_idle_time_is_the_highest_reached() -> None:
    """The time does not depend on which source became idle last."""
    for order in ((FROM_P, FROM_Q), (FROM_Q, FROM_P)):
        time = EventTime([], [FROM_P, FROM_Q])
        read(time, FROM_P, 100)
        read(time, FROM_Q, 60)
        for source in order:
            time.set_idle(source)
        assert (time.now, time.idle) == (100, True)


def test_a_lower_watermark_changes_nothing() -> None:
    """One that is read again says nothing new, also not that its channel is idle."""
    time = EventTime([A, B], [])
    time.watermark(A, 100, idle=False)
    time.watermark(A, 50, idle=True)
    time.watermark(B, 200, idle=False)
    assert (time.now, time.idle) == (100, False)


def test_a_saved_state_comes_back_and_old_states_hold_time_up() -> None:
    """A saved state is restored; time never falls below the saved one; unknown sources begin again."""
    time = EventTime([A, B], [FROM_P])
    time.watermark(A, 100, idle=True)
    time.watermark(B, 90, idle=False)
    read(time, FROM_P, 120)
    saved = dict(time.save())
    again = EventTime([A, B, (3, S)], [FROM_P, FROM_Q])
    again.load(time.now, saved.get)
    assert again.now == 90
    again.watermark((3, S), 500, idle=False)
    assert read(again, FROM_Q, 400) == 90
    again.watermark(B, 130, idle=False)
    assert again.now == 120, "A is still idle, P is at 120"
    old = EventTime([A], [])
    old.load(1_000, lambda _: None)
    old.watermark(A, 900, idle=False)
    assert old.now == 1_000


def test_records_that_a_commit_cuts_off_have_moved_their_partition() -> None:
    """A task that goes on behind a commit is where its successor is, which loads what was saved (E10)."""
    time = EventTime([], [FROM_P, FROM_Q])
    read(time, FROM_Q, 110)
    time.begin(FROM_P)
    time.highest = 112
    time.cut()
    again = EventTime([], [FROM_P, FROM_Q])
    again.load(time.now, dict(time.save()).get)
    assert [read(each, FROM_Q, 117) for each in (time, again)] == [112, 112]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.sampled_from([FROM_P, FROM_Q]), st.lists(st.integers(0, 99), min_size=1)),
        st.tuples(st.just("tell"), st.sampled_from([A, B]), st.tuples(st.integers(0, 99), st.booleans())),
        st.tuples(st.just("idle"), st.sampled_from([FROM_P, FROM_Q]), st.just(0)),
        st.tuples(st.just("save"), st.just(A), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_time_agrees_with_a_model(steps: list[tuple[str, TimeSource, object]]) -> None:
    """Time is the minimum of a plain reading of the rule, never goes back, and survives a restart."""
    time = EventTime([A, B], [FROM_P, FROM_Q])
    reached, idle, now = dict.fromkeys(SOURCES, BEFORE_ALL), set[TimeSource](), BEFORE_ALL
    for kind, source, value in steps:
        if kind == "read":
            assert isinstance(value, list)
            read(time, source, *value)
            idle.discard(source)
            reached[source] = max(reached[source], *value)
        elif kind == "tell":
            assert isinstance(value, tuple)
            time.watermark(source, value[0], idle=value[1])
            if value[0] >= reached[source]:
                reached[source] = value[0]
                (idle.add if value[1] else idle.discard)(source)
        elif kind == "idle":
            time.set_idle(source)
            idle.add(source)
        else:
            saved, before = dict(time.save()), time.now
            time = EventTime([A, B], [FROM_P, FROM_Q])
            time.load(before, saved.get)
            idle -= {FROM_P, FROM_Q}  # of those the clock of the process decided
            continue
        now = max(now, min((reached[s] for s in SOURCES if s not in idle), default=max(reached.values())))
        assert (time.now, time.idle) == (now, len(idle) == len(SOURCES))


def test_a_partition_is_idle_once_it_was_read_to_its_end_for_long_enough() -> None:
    """Not before, not if something is left or held, and again only after another record."""
    idle, where = IdleInputs({P: 100, Q: 100}), {P: (5, 5), Q: (0, 9)}
    for partition in (P, Q):
        idle.active(partition, 0)
    assert idle.due_ms == 100
    assert idle.idle_partitions(99, where.get) == []
    assert idle.idle_partitions(100, where.get) == [P]
    assert idle.idle_partitions(150, where.get) == []
    idle.active(P, 160)
    assert idle.due_ms == 200
    where[Q] = (3, 9)
    assert idle.idle_partitions(200, where.get) == []
    assert idle.idle_partitions(260, where.get) == [P]


def test_watermarks_are_held_back_for_a_moment() -> None:
    """A message for each partition is not sent for each tiny batch; the next due moment brings the last."""
    task = Driven(wire(replace(JOB, timed=frozenset({2})), 1, 0), checkpoint_interval_ms=100)
    for producer in (Producer(task, A0), Producer(task, A1)):
        producer.rollback_marker(0)
    task.start()

    def told() -> list[int]:
        rows = task.data.partition(OUT[0]).rows
        messages = [row.value or b"" for row in rows]
        return [
            decode_watermark(message).watermarks[0]
            for message in messages
            if decode_header(message).type is MessageType.WATERMARK
        ]

    for value in (100, 200, 300):
        task.runner.watermark = (value, False)
        task.run()
    assert told() == [100]
    assert task.driver.due_in_ms() <= WATERMARK_MS
    task.now_ms += WATERMARK_MS
    task.run()
    assert told() == [100, 300]
    task.runner.watermark = (400, True)
    task.now_ms += 1
    task.run()
    assert told() == [100, 300]


@pytest.mark.parametrize("mark", [(100, True), (AFTER_ALL, True)])
def test_what_is_sent_while_idle_is_followed_by_the_same_watermark(mark: tuple[int, bool]) -> None:
    """A record makes its channel neither idle nor ended for its consumer, though the producer is it as before."""
    task = Driven(wire(replace(JOB, timed=frozenset({2})), 1, 0), checkpoint_interval_ms=100)
    producer, other = Producer(task, A0), Producer(task, A1)
    for each in (producer, other):
        each.rollback_marker(0)
    task.start()
    task.runner.watermark = mark
    task.run()
    producer.send(1, "x")
    task.run()
    task.now_ms += WATERMARK_MS
    task.run()
    headers = [decode_header(row.value or b"") for row in task.data.partition(OUT[0]).rows]
    types = [header.type for header in headers if header.type in (MessageType.WATERMARK, MessageType.FRAME)]
    assert types == [MessageType.WATERMARK, MessageType.FRAME, MessageType.WATERMARK]


def test_what_is_left_and_never_comes_is_no_record() -> None:
    """The marks of a producer's transactions stand before an end; rows at hand do not make a partition idle."""
    idle, left, held = IdleInputs({P: 100}), {P: (3, 9)}, dict[TopicPartition, tuple[int, int]]()
    idle.active(P, 0)
    assert idle.idle_partitions(100, left.get) == []
    assert idle.idle_partitions(200, held.get) == []
    assert idle.idle_partitions(300, left.get) == [P]
