"""Watermarks in a channel: they go the way of a frame without records (E2, E3)."""

from dataclasses import replace

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.errors import Halted
from grete.protocol.control import decode_watermark
from grete.protocol.envelope import MessageType, decode_header
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, IN, JOB, OUT, Log, Producer, T

TIMED = replace(JOB, timed=frozenset({2}))


# --- what is admitted ---


def test_a_watermark_is_processed_in_its_place() -> None:
    """It reaches the task's code between the records before it and those behind it."""
    task, a0, _ = running()
    a0.send(1, "x")
    a0.tell(1, 100)
    a0.send(1, "y")
    task.read()
    assert task.open == ["x", "@100", "y"]


def test_a_watermark_takes_no_number() -> None:
    """The seqs of records go on as if it were not there, in the channel and in the commit."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.tell(1, 100)
    a0.send(1, "y")
    for producer in (a0, a1):
        producer.mark(1)
    task.read()
    assert task.committed[1] == ["x", "@100", "y"]
    [commit] = task.log.commits(task.task)[1:]
    assert [c.seq for i in commit.inputs for c in i.channels] == [2, 0]


def test_an_early_watermark_waits_for_its_checkpoint() -> None:
    """An early watermark is applied when its checkpoint opens, not before: its records are early, too (A4)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.mark(1)
    a0.send(2, "early")
    a0.tell(2, 100)
    a1.send(1, "late")
    task.read()
    assert task.open == ["x", "late"]
    a1.mark(1)
    task.read()
    assert (task.committed[1], task.open) == (["x", "late"], ["early", "@100"])


def test_an_early_watermark_is_spilled_and_read_again() -> None:
    """Without memory for early frames it goes to disk, like a frame (A4)."""
    task, a0, a1 = running(early_memory_bytes_max=0)
    a0.mark(1)
    a0.tell(2, 100)
    task.read()
    assert len(task.all(do.Spill)) == 1
    a1.mark(1)
    task.read()
    assert task.open == ["@100"]


def test_without_room_a_watermark_is_skipped_and_read_again() -> None:
    """A channel that skips ignores watermarks; after the freeze they are read again, in their place (A5)."""
    task, a0, a1 = running(early_bytes_max=0)
    a0.mark(1)
    a0.send(2, "early")
    a0.tell(2, 100)
    a1.mark(1)
    task.read()
    assert task.open == ["early", "@100"]
    a0.mark(2)
    a1.mark(2)
    task.read()
    assert task.committed[2] == ["early", "@100"]


def test_a_watermark_alone_can_begin_to_skip() -> None:
    """It is not lost where there is no room even for it: the channel resumes at it."""
    task, a0, a1 = running(early_bytes_max=0)
    a0.mark(1)
    offset = a0.tell(2, 100)
    task.read()
    a1.mark(1)
    task.read(count=1)
    assert task.log.commits(task.task)[-1].inputs[0].resume <= offset
    task.read()
    assert task.open == ["@100"]


def test_a_watermark_that_the_log_repeats_behind_its_marker_is_known() -> None:
    """The marker of its checkpoint says that all of that was read: the channel skips nothing, full as the buffer is."""
    task, a0, _ = running(early_bytes_max=60)
    a0.tell(2, 100)
    a0.mark(2)
    task.read()
    a0.tell(2, 100)
    task.read()
    task.core.check_invariants()
    assert task.core.seen["known watermarks dropped"] == 1
    assert task.core.seen["early frames skipped"] == 0


def test_a_rolled_back_watermark_is_dropped() -> None:
    """A watermark that its producer has rolled back has no effect (R3)."""
    task, a0, _ = running()
    late = Producer(task.log, A0)
    late.generation = 1
    a0.rollback_marker(0)
    task.read()
    late.tell(1, 100, seq=1)
    task.read()
    assert task.open == []
    assert task.core.seen["rolled-back watermarks dropped"] == 1


def test_an_early_watermark_is_dropped_by_a_restore() -> None:
    """A rollback marker empties the buffer of what it takes back, watermarks included (R4)."""
    task, a0, a1 = running()
    a0.mark(1)
    a0.tell(2, 100)
    task.read()
    a0.rollback_marker(1)
    a1.mark(1)
    task.read()
    assert (task.open, task.core.inputs.early.bytes) == ([], 0)


def test_a_watermark_alone_makes_the_task_rollback() -> None:
    """A timer may have fired by the watermark.

    The state that holds a watermark is rolled back with it, without any record (R4).
    """
    task, a0, _ = running()
    a0.tell(1, 100)
    task.read()
    assert task.open == ["@100"]
    a0.rollback_marker(0)
    actions = task.read()
    assert do.DropOpen() in actions
    assert task.open == []
    assert task.core.generation == 2


def test_a_watermark_read_again_is_ignored() -> None:
    """One of a closed checkpoint, or with a record behind it that is known, was applied before."""
    task, a0, a1 = running()
    a0.tell(1, 100, idle=True)
    a0.mark(1)
    a1.mark(1)
    a0.send(2, "x")
    task.read()
    repeated = a0.tell(2, 50, idle=True, seq=1)
    a0.tell(1, 100, seq=2)
    task.read()
    assert repeated < task.position[T]
    assert task.open == ["x"]
    assert task.core.seen["known watermarks dropped"] == 2


def test_a_record_lost_before_a_watermark_is_noticed() -> None:
    """Its seq is the channel's next: above what is known, a record before it is missing."""
    task, a0, _ = running()
    a0.send(1, "x")
    a0.tell(1, 100, seq=3)
    with pytest.raises(Halted, match="expected seq 2: a record before the watermark was lost"):
        task.read()


def test_a_generation_that_was_not_announced_is_noticed() -> None:
    """As with a frame: the rollback marker before it was lost (R2)."""
    task, a0, _ = running()
    a0.generation += 1
    a0.tell(1, 100)
    with pytest.raises(Halted, match="generation was never announced"):
        task.read()


def test_at_least_once_a_watermark_is_processed_as_it_comes() -> None:
    """No checkpoint id, no buffer: whatever its checkpoint, it is taken; a restart leads to repeats (1.5)."""
    log = Log()
    producer = Producer(log, A0)
    producer.rollback_marker(0)
    Producer(log, A0 + 1).rollback_marker(0)
    task = Scenario(log, aligned=False).start()
    producer.send(5_000, "x")
    producer.tell(7_000, 100)
    task.read()
    producer.rollback_marker(0)
    producer.tell(1, 100)
    task.read()
    assert task.open == ["x", "@100", "@100"]


# --- what is sent ---


def _source(job: Topology = TIMED, stage: int = 1) -> Scenario:
    log = Log()
    for producer in (Producer(log, A0), Producer(log, A0 + 1)):
        producer.rollback_marker(0)
    task = Scenario(log, wire(job, stage, 0)).start()
    task.read()
    return task


def test_event_time_is_sent_behind_the_frames_into_every_partition() -> None:
    """A watermark carries generation, checkpoint id and seq of the channel.

    A record before it may be older than the time that it gives (E2).
    """
    task = _source()
    task.step(on.OutputFrames([(OUT[0], 2, b"")], (100, False)))
    sent = [(s.partition, decode_header(s.value)) for s in task.all(do.Send)][2:]
    assert [(p, h.type.name, h.generation, h.checkpoint_id, h.seq) for p, h in sent] == [
        (OUT[0], "FRAME", 1, 1, 1),
        (OUT[0], "WATERMARK", 1, 1, 3),
        (OUT[1], "WATERMARK", 1, 1, 1),
    ]
    last = decode_watermark(task.all(do.Send)[-1].value)
    assert (last.watermarks, last.idle, last.times) == ((100,), False, None)


def test_event_time_goes_only_where_it_is_used() -> None:
    """A job without timers and windows sends what it sent before; no stage behind the last timed one is told."""
    assert wire(JOB, 1, 0).timed_outputs == ()
    assert wire(TIMED, 1, 0).timed_outputs == OUT
    assert wire(TIMED, 0, 0).timed_outputs == wire(TIMED, 0, 0).outputs
    assert wire(replace(JOB, timed=frozenset({1})), 1, 0).timed_outputs == ()
    assert [wire(replace(JOB, timed=frozenset({1})), stage, 0).keeps_time for stage in range(3)] == [True, True, False]


def test_of_two_streams_only_the_one_towards_timers_is_told() -> None:
    """The graph alone decides which streams carry watermarks."""
    streams = (Stream("j.a.t.b", 0, 1, 1, "t"), Stream("j.a.t.c", 0, 2, 1, "t"))
    job = Topology(
        "j", (Stage("a", 0, 1), Stage("b", 1, 1), Stage("c", 2, 1)), streams, {0: ("in",)}, timed=frozenset({2})
    )
    assert [partition.topic for partition in wire(job, 0, 0).timed_outputs] == ["j.a.t.c"]
    assert not wire(job, 1, 0).keeps_time


def test_a_watermark_at_the_end_of_a_checkpoint_carries_its_id() -> None:
    """Flushed before the freeze, it belongs to the checkpoint: its consumer applies it in the same one."""
    task = Scenario(Log(), wire(TIMED, 0, 0)).start()
    task.take_external("x")
    task.hold.add(do.FlushOutputs)
    task.tick(100)
    task.hold.clear()
    task.held.clear()
    task.step(on.OutputFrames([], (100, True)))
    sent = [decode_header(send.value) for send in task.all(do.Send) if send.partition == wire(TIMED, 0, 0).outputs[0]]
    kinds = [(header.type, header.checkpoint_id) for header in sent]
    checkpoint_id = max(task.committed)
    assert kinds[-2:] == [(MessageType.WATERMARK, 1_001), (MessageType.MARKER, checkpoint_id)]
    assert task.core.external.position[IN] == 1
