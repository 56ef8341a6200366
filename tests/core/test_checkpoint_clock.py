"""Sources: when a checkpoint is closed and which number it gets (A1), and where a source is in its inputs (A2)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.core import actions as do
from grete.core import events as on
from grete.core.checkpoint_clock import CheckpointClock
from grete.core.graph.task_topology import wire
from grete.core.lifecycle import TaskStatus
from grete.core.limits import SENT_PARTS, SENT_RECORD_BYTES
from grete.errors import Halted
from grete.protocol.envelope import Header, MessageType
from grete.protocol.ids import TopicPartition
from tests.core.scenario import LIMITS, Scenario
from tests.core.streams import A0, IN, JOB, SOURCE, Log, T

FRAME, MARKER = MessageType.FRAME, MessageType.MARKER


def source(**limits: int) -> Scenario:
    """Return a running source whose interval is 100 ms, at 1,050 ms of the log's clock: 1,000 is closed."""
    task = Scenario(Log(), SOURCE, limits=replace(LIMITS, **limits)).start()
    assert (task.core.status, closed(task)) == (TaskStatus.RUNNING, [1_000])
    return task


def closed(task: Scenario) -> list[int]:
    """Return the checkpoints that the task has closed since the genesis."""
    return [freeze.checkpoint_id for freeze in task.all(do.Freeze)][1:]


# --- A1: the clock ----------------------------------------------------------------------------------------------------


@given(
    interval=st.integers(1, 1_000),
    anchor=st.integers(0, 10**13),
    mono=st.integers(0, 10**9),
    steps=st.lists(st.integers(0, 5_000), max_size=20),
)
def test_checkpoints_grow_and_lie_on_the_interval(interval: int, anchor: int, mono: int, steps: list[int]) -> None:
    """The number of a due checkpoint is greater, a multiple of the interval and not in the future (A1)."""
    clock = CheckpointClock(interval)
    clock.anchor(anchor, mono)
    open_checkpoint = clock.boundary(mono) + 1
    for step in steps:
        mono += step
        assert clock.due(open_checkpoint, mono) == (clock.next_due_ms(open_checkpoint, mono) == 0)
        if clock.due(open_checkpoint, mono):
            checkpoint_id = max(open_checkpoint, clock.boundary(mono))
            assert open_checkpoint <= checkpoint_id <= clock.now(mono)
            assert checkpoint_id % interval == 0
            open_checkpoint = checkpoint_id + 1
        else:
            assert clock.due(open_checkpoint, mono + clock.next_due_ms(open_checkpoint, mono))


@given(st.integers(1, 500), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 100_000))
def test_sources_that_keep_time_close_equal_checkpoints(interval: int, mine: int, others: int, passed: int) -> None:
    """Two processes with different monotonic clocks, anchored at different moments, agree on the boundary (A1)."""
    first, second = CheckpointClock(interval), CheckpointClock(interval)
    first.anchor(5_000, mine)
    second.anchor(5_000 + passed // 2, others + passed // 2)
    assert first.boundary(mine + passed) == second.boundary(others + passed)


def test_a_source_closes_once_per_interval() -> None:
    """It closes now, rounded down, once the interval of its checkpoint id has passed (A1)."""
    task = source()
    assert task.core.due_in_ms(task.mono_ms) == 50
    task.tick(49)
    assert closed(task) == [1_000]
    task.tick(1)
    assert closed(task) == [1_000, 1_100]


def test_the_checkpoint_id_is_last_plus_one_not_the_next_boundary() -> None:
    """Records after checkpoint 1,000 carry 1,001.

    With the boundary, every record would go through early buffers (A1).
    """
    task = source()
    task.emit(T, "x")
    task.flush()
    assert task.sent(T)[-1] == Header(FRAME, A0, 1, 1_001, 1)


def test_an_idle_source_closes_too() -> None:
    """With nothing read, checkpoints are closed, committed and marked in every partition downstream (A1)."""
    task = source()
    for _ in range(3):
        task.tick(100)
    assert closed(task) == [1_000, 1_100, 1_200, 1_300]
    for partition in SOURCE.outputs:
        markers = [header for header in task.sent(partition) if header.type is MARKER]
        assert [(header.checkpoint_id, header.seq) for header in markers] == [
            (1_000, 1),
            (1_100, 1),
            (1_200, 1),
            (1_300, 1),
        ]


def test_a_source_that_was_paused_closes_one_checkpoint_for_all_intervals() -> None:
    """V = max(checkpoint id, now rounded down): the intervals in between are skipped, not made up for (A1)."""
    task = source()
    task.tick(1_000)
    assert closed(task) == [1_000, 2_000]


def test_a_clock_that_went_back_never_lowers_a_checkpoint() -> None:
    """If the log's clock is behind the last checkpoint, the next one waits for the interval of its id (A1)."""
    task = source()
    task.tick(10_000)
    task.log.now_ms = 3_000
    after = task.successor().start()
    assert (after.core.frozen, after.core.due_in_ms(0)) == (11_000, 8_100)
    after.tick(8_099)
    assert after.all(do.Freeze) == []
    after.tick(1)
    assert [freeze.checkpoint_id for freeze in after.all(do.Freeze)] == [11_100]


def test_the_clock_is_anchored_again_at_each_own_commit() -> None:
    """The monotonic clock carries the log's time only from the last own message: drift does not add up (1.8 A1)."""
    task = source()
    task.log.now_ms += 400  # the log's clock runs ahead of this host's
    task.tick(50)
    assert closed(task) == [1_000, 1_100, 1_500]  # 1,100 by the host's clock; its commit is appended at 1,500
    assert task.core.due_in_ms(task.mono_ms) == 100


def test_the_wall_clock_plays_no_part() -> None:
    """A host whose clock is years off closes the same checkpoints: only the log's clock counts (A1)."""
    task = Scenario(Log(), SOURCE)
    bounds = dict.fromkeys((SOURCE.changelog, IN), (0, 0))
    task.step(on.Start(0, task.nonce, "here", 1, 4_000_000_000_000, None, bounds))
    assert closed(task) == [1_000]


def test_one_commit_at_a_time() -> None:
    """A checkpoint that falls due while a commit is in flight waits for it, and then has the later number (A8)."""
    task = source()
    task.hold.add(do.AppendChangelog)
    for _ in range(3):
        task.tick(100)
    assert closed(task) == [1_000, 1_100]
    task.release()
    assert closed(task) == [1_000, 1_100, 1_300]


def test_a_full_write_batch_closes_a_checkpoint_early() -> None:
    """Near the write batch's bound a source closes by count (A9).

    V is then the current checkpoint id, before its interval is over.
    """
    task = source(uncommitted_state_bytes_max=100)
    task.take_external("1", "2", "3", "4", "5")
    assert closed(task) == [1_000]
    task.take_external("6")
    assert closed(task) == [1_000, 1_001]
    assert len(task.committed[1_001]) == 6


def test_a_checkpoint_closed_early_is_closed_once() -> None:
    """The write batch is empty after the freeze: no further checkpoint is closed before there is a reason (A9)."""
    task = source(uncommitted_state_bytes_max=100)
    task.hold.add(do.AppendChangelog)
    task.open_bytes = 51
    task.tick(10)
    task.release()
    assert closed(task) == [1_000, 1_001]


def test_a_source_with_a_full_write_batch_waits_for_the_commit_in_flight() -> None:
    """Two write batches are all there is: beyond, a source takes no input until the frozen one is in the store (A9)."""
    task = source(uncommitted_state_bytes_max=100)
    task.hold.add(do.AppendChangelog)
    task.take_external("1", "2", "3", "4", "5", "6")
    task.take_external("7", "8", "9", "10", "11", "12")
    assert (closed(task), task.core.wants_input) == ([1_000, 1_001], False)
    task.release()
    assert (closed(task), task.core.wants_input) == ([1_000, 1_001, 1_002], True)


def ask(task: Scenario, checkpoint_id: int) -> None:
    """Tell a source what a task behind it asks for; no time passes."""
    task.step(on.Tick(task.mono_ms, 0, asked=checkpoint_id))


def sends(task: Scenario, size: int) -> None:
    """Let a source send a record of about that many bytes."""
    task.emit(T, "x" * size)
    task.flush()


def test_a_source_that_has_sent_much_closes_a_checkpoint_early() -> None:
    """A task behind it may hold an output or a change of state for each record until the marker comes (A9)."""
    task = source(uncommitted_state_bytes_max=SENT_PARTS * 1_000)
    sends(task, 900 - SENT_RECORD_BYTES)
    assert closed(task) == [1_000]
    sends(task, 100)
    assert closed(task) == [1_000, 1_001]
    sends(task, 900 - SENT_RECORD_BYTES)
    assert closed(task) == [1_000, 1_001]


def test_a_source_that_is_asked_closes_the_checkpoint_once() -> None:
    """An older ask, or the same again, closes nothing."""
    task = source()
    ask(task, 1_001)
    assert closed(task) == [1_000, 1_001]
    for checkpoint_id in (1_001, 1_000, 0):
        ask(task, checkpoint_id)
    assert closed(task) == [1_000, 1_001]
    ask(task, 1_100)
    assert closed(task) == [1_000, 1_001, 1_002]


def test_each_ask_makes_the_next_checkpoints_smaller() -> None:
    """Also one that comes too late, for what is on its way is as large; there is a least size."""
    task = source(uncommitted_state_bytes_max=SENT_PARTS * 2_000)
    task.tick(100)
    ask(task, 1_001)
    assert closed(task) == [1_000, 1_100]
    sends(task, 1_000)
    assert closed(task) == [1_000, 1_100, 1_101]
    for late in range(1_002, 1_050):
        ask(task, late)
    task.flush()
    assert closed(task) == [1_000, 1_100, 1_101]
    sends(task, 1)
    assert closed(task) == [1_000, 1_100, 1_101, 1_102]


def test_at_least_once_no_checkpoint_is_closed_for_the_tasks_behind() -> None:
    """There each task goes by its own timer."""
    task = Scenario(
        Log(), SOURCE, limits=replace(LIMITS, uncommitted_state_bytes_max=SENT_PARTS * 100), aligned=False
    ).start()
    before = closed(task)
    sends(task, 1_000)
    assert closed(task) == before


def test_a_stage_with_only_external_inputs_is_a_source() -> None:
    """It closes by its timer; a task with any internal input does not (1.8 A1)."""
    assert SOURCE.is_source
    mixed = wire(replace(JOB, external_inputs={1: ("side",)}), 1, 0)
    assert (mixed.is_source, mixed.external) == (False, (TopicPartition("side", 0),))
    task = Scenario(Log(), mixed).start()
    assert task.core.due_in_ms(0) == 60_000
    task.tick(10_000)
    assert closed(task) == []


# --- A2: the position -------------------------------------------------------------------------------------------------


def test_the_genesis_pins_start_offsets_before_anything() -> None:
    """The first commit holds the numeric offsets of what is there now.

    It is committed before the rollback marker is sent (A2).
    """
    log = Log()
    log.append(IN, *[b"old"] * 7)
    log.start[IN] = 5
    task = Scenario(log, SOURCE)
    task.hold.add(do.ApplyFrozen)
    task.start()
    [genesis] = log.commits(SOURCE)
    assert (genesis.checkpoint_id, genesis.previous, genesis.fingerprint) == (0, -1, JOB.fingerprint())
    assert [(entry.topic, entry.offset) for entry in genesis.external] == [("in", 5)]
    assert not task.all(do.Send) + task.all(do.Seek)
    assert not task.core.wants_input
    task.release()
    kinds = [
        type(action) for action in task.done if isinstance(action, do.ApplyFrozen | do.Committed | do.Send | do.Seek)
    ]
    assert kinds[:5] == [do.ApplyFrozen, do.Committed, do.Send, do.Send, do.Seek]
    assert (task.position, task.core.wants_input) == ({IN: 5}, True)


def test_a_crash_after_the_genesis_keeps_its_offsets() -> None:
    """Pinned offsets stay pinned after the topic was trimmed or has grown (A2)."""
    log = Log()
    task = Scenario(log, SOURCE)
    task.hold.add(do.ApplyFrozen)
    task.start()
    log.append(IN, *[b"new"] * 3)
    after = task.successor().start()
    assert after.position == {IN: 0}
    assert [commit.previous for commit in log.commits(SOURCE)] == [-1, 0]  # one genesis, then the first checkpoint


def test_the_position_is_part_of_the_commit() -> None:
    """A checkpoint holds the offset up to which records were processed; a successor goes on there (A2)."""
    task = source()
    task.take_external("x", "y")
    task.hold.add(do.WriteData)
    task.tick(100)
    task.take_external("of the next checkpoint")
    task.release()
    assert task.committed[1_100] == ["x", "y"]
    after = task.successor(same_host=False).start()
    assert (after.position, after.state) == ({IN: 2}, ["x", "y"])


def test_a_new_external_topic_begins_where_its_log_does() -> None:
    """A topic that the last commit does not know is read from its start; the others go on (A2, 1.2)."""
    task = source()
    task.take_external("x")
    task.tick(100)
    more = wire(replace(JOB, external_inputs={0: ("in", "more")}), 0, 0)
    task.log.start[TopicPartition("more", 0)] = 3
    after = Scenario(task.log, more).start()
    assert after.position == {IN: 1, TopicPartition("more", 0): 3}


def test_an_external_input_trimmed_beyond_the_position_halts() -> None:
    """Unread records must be in the log: else they would be skipped in silence (K3)."""
    task = source()
    task.tick(100)
    task.log.start[IN] = 1
    with pytest.raises(Halted, match=r"in\[0\] no longer has offset 0, at which a-0 reads on: the log starts at 1"):
        task.successor().start()


def test_the_end_of_an_input_is_a_flag_on_commit_and_marker() -> None:
    """A source at its end says so and goes on sending markers like any idle one (A2b)."""
    task = source()
    task.tick(100)
    task.take_external("last", ended=True)
    task.tick(100)
    task.tick(100)
    assert [commit.at_end for commit in task.log.commits(SOURCE)] == [False, False, False, True, True]
    markers = [send.value[-1] for send in task.all(do.Send) if send.partition == T and send.value[0] & 0xF == MARKER]
    assert markers == [0, 0, 1, 1]
    task.take_external("another")
    task.tick(100)
    assert not task.log.commits(SOURCE)[-1].at_end
