"""The driver at the ends of a job: sources, sinks, and the bounds at which a task stops consuming (A2, A8, B1, S1)."""

import pytest

from grete.errors import Fenced, Halted, TransientError
from grete.logs.memory import MemoryLog
from tests.core.streams import IN, SINK, SOURCE
from tests.execution.driving import ELSEWHERE, OUTSIDE, Driven, driven, outside, sink

# --- sources ----------------------------------------------------------------------------------------------------------


def test_a_source_reads_closes_and_resumes() -> None:
    """Rows from outside go into checkpoints by the log's clock; a successor goes on behind them (A1, A2)."""
    task = Driven(SOURCE, checkpoint_interval_ms=100).start()
    task.append(IN, b"x", b"y")
    task.run()
    assert not task.keys()
    task.now_ms += 100
    task.run()
    assert task.keys() == {"x", "y"}
    task.append(IN, b"z")
    after = Driven(SOURCE, data=task.data, disk=task.disk, nonce=b"another process!", checkpoint_interval_ms=100)
    after.now_ms = task.now_ms
    after.start()
    assert after.runner.processed == ["z"]


def test_a_source_says_when_its_inputs_have_ended() -> None:
    """Nothing left now is news once; the flag is in the next commit, and is taken back when more arrives (A2b)."""
    task = Driven(SOURCE, checkpoint_interval_ms=100).start()
    assert task.core.external.ended == {IN: True}
    task.now_ms += 100
    task.run()
    assert task.core.commits.committed is not None
    assert task.core.commits.committed.at_end
    task.append(IN, b"x")
    task.driver.tick()
    assert task.core.external.ended == {IN: False}
    task.now_ms += 100  # it is not asked while more may be coming
    task.run()
    assert task.core.external.ended == {IN: True}  # it is drained again


def test_a_source_pauses_while_its_consumers_are_far_behind() -> None:
    """More than downstream_lag_messages_max messages in a stream that are not processed pause the source (B1).

    It takes no more input, but still closes checkpoints.
    """
    task = Driven(SOURCE, checkpoint_interval_ms=100, downstream_lag_messages_max=3, batch_bytes_max=1).start()
    for number in range(100):
        task.append(IN, b"%d" % number)
    while task.driver.tick():
        for delivery in task.log.poll():
            task.driver.delivered(delivery)
    task.run()
    paused = len(task.runner.processed)
    assert 0 < paused < 100
    task.now_ms += 1_000
    task.run()
    assert (len(task.runner.processed), task.core.frozen) == (paused, 2_000)
    for partition in SOURCE.outputs:
        MemoryLog(task.data).trim(partition, task.log.bounds(partition)[1])
    task.now_ms += 10  # it does not look at each tick
    task.run()
    assert len(task.runner.processed) > paused


def test_a_full_queue_stops_consumption() -> None:
    """More than unacked_bytes_max on its way: no more input until it is acknowledged; nothing is dropped (B1)."""
    task, a0, _ = driven(unacked_bytes_max=1, batch_bytes_max=1)
    task.log.mute = True
    a0.send(1, "x")
    a0.send(1, "y")
    task.run()
    assert task.runner.processed == ["x"]
    task.log.mute = False
    task.run()
    assert task.runner.processed == ["x", "y"]


def test_an_unacknowledged_commit_ends_the_process() -> None:
    """Its outcome is unknown: the process ends, and the next claim decides (C4, B1)."""
    task, a0, a1 = driven(send_timeout_ms=1_000)
    task.log.mute = True
    a0.mark(1)
    a1.mark(1)
    task.run()
    assert task.trace[-1].what == "commit"
    task.now_ms += 1_001
    with pytest.raises(TransientError, match="a claim or commit is unacknowledged"):
        task.run()
    after = Driven(data=task.data, disk=task.disk, nonce=b"another process!").start()
    assert after.core.frozen == 1


# --- a state that must not be ----------------------------------------------------------------------------------------


def test_a_fenced_task_names_a_violated_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that another has replaced says so first, and then that more was acknowledged than it has sent (C5)."""
    task, a0, a1 = driven()
    Driven(data=task.data, nonce=b"another process!").start()
    verify_tail = task.core.ownership.verify_tail

    def broken(offset: int, value: bytes) -> None:
        task.core.sender.acked = 1 << 40
        verify_tail(offset, value)

    monkeypatch.setattr(task.core.ownership, "verify_tail", broken)
    a0.mark(1)
    a1.mark(1)
    with pytest.raises(Fenced, match=r"another worker has taken over .*; besides, b-0 violates an invariant \(Sender"):
        task.run()


def test_a_rollback_of_a_state_that_must_not_be_ends_the_task() -> None:
    """A producer takes a record back, and the task finds that its position counts what it has not read (C6)."""
    task, a0, _ = driven()
    a0.send(1, "rolled back")
    task.run()
    task.core.inputs.early.bytes = 7
    a0.rollback_marker(0)
    with pytest.raises(AssertionError):
        task.run()


# --- sinks ------------------------------------------------------------------------------------------------------------


def test_a_sinks_outputs_become_visible_with_the_commit() -> None:
    """Held back until then, and visible with it at once; outputs of the next checkpoint stay behind (S1, A8)."""
    task, producers = sink()
    producers[0].send(1, "x")
    task.run()
    assert outside(task) == []
    for producer in producers:
        producer.mark(1)
    producers[0].send(2, "y")
    task.run()
    assert outside(task) == [b"x"]


def test_a_rollback_drops_what_a_sink_held_back() -> None:
    """A held output that was never visible needs no undo (S1, R4)."""
    task, producers = sink()
    producers[0].send(1, "rolled back")
    task.run()
    producers[0].rollback_marker(0)
    producers[0].send(1, "x")
    for producer in producers:
        producer.mark(1)
    task.run()
    assert outside(task) == [b"x"]


def test_a_fenced_sinks_outputs_never_appear() -> None:
    """The log refuses commit and outputs together (S1, C3)."""
    task, producers = sink()
    producers[0].send(1, "x")
    task.run()
    Driven(SINK, data=task.data, nonce=b"another process!").start()
    for producer in producers:
        producer.mark(1)
    with pytest.raises(Fenced):
        task.run()
    assert outside(task) == []


def test_a_sink_waits_at_its_bound_for_the_commit_in_flight() -> None:
    """A sink that holds back more than sink_buffer_bytes_max for the next checkpoint waits.

    It takes no input until the transaction has ended (A8).
    """
    task, producers = sink(sink_buffer_bytes_max=3, batch_bytes_max=1)
    for producer in producers:
        producer.mark(1)
    task.log.mute = True
    task.run()
    for name in ("aaaa", "bbbb"):
        producers[0].send(2, name)
    task.run()
    assert task.runner.processed == ["aaaa"]
    task.log.mute = False
    task.run()
    assert task.runner.processed == ["aaaa", "bbbb"]


def test_outputs_beyond_the_write_batches_bound_halt_naming_the_setting() -> None:
    """One checkpoint's outputs do not fit in memory: the error says which setting to raise (A9)."""
    task, producers = sink(uncommitted_state_bytes_max=4_000, batch_bytes_max=1)
    for _ in range(6):
        producers[0].send(1, "x" * 1_000)  # one key of state, but an output each
    with pytest.raises(
        Halted, match=r"5000 bytes of output in one checkpoint \(setting uncommitted_state_bytes_max = 4000\): raise it"
    ):
        task.run()


def test_at_least_once_sinks_send_at_once_and_commit_behind() -> None:
    """Plain records go out as they are made; the commit waits until they are acknowledged (1.5, A7)."""
    task, producers = sink(processing_guarantee="at-least-once", checkpoint_interval_ms=100)
    producers[0].send(1, "x")
    task.trace.clear()
    task.log.mute = True
    task.run()
    assert outside(task) == [b"x"]
    task.now_ms += 100
    task.run()
    assert [step.what for step in task.trace] == ["plain records", "freeze"]
    task.log.mute = False
    task.run()
    whats = [step.what for step in task.trace]
    assert whats.index("plain records acknowledged") < whats.index("data") < whats.index("commit")


def test_an_output_partition_that_does_not_answer_stops_consumption() -> None:
    """At least once: what it owes is bounded, too (B1); nothing is lost."""
    task, producers = sink(processing_guarantee="at-least-once", unacked_bytes_max=100_000, batch_bytes_max=1_000)
    task.log.away = OUTSIDE
    for number in range(2_000):
        producers[0].send(1, f"{number:01000}")
    task.run()
    assert 100 <= len(task.runner.processed) <= 102
    task.log.away = None
    task.run()
    assert len(task.runner.processed) == 2_000
    assert len(task.log.read(OUTSIDE, 0, 1 << 30)) == 2_000


def test_what_waits_for_one_partition_is_not_what_another_has_acknowledged() -> None:
    """At least once: each answer is for the records that it answers, for the bound and for the time-out (B1)."""
    task, producers = sink(processing_guarantee="at-least-once", unacked_bytes_max=100_000, send_timeout_ms=1_000)
    task.log.away = OUTSIDE
    producers[0].send(1, "x" * 1_000)
    task.run()
    task.runner.outside = ELSEWHERE
    producers[0].send(1, "y")
    task.run()
    assert task.driver.parts.sends.pending.bytes == 1_000
    task.now_ms += 1_001
    producers[0].send(1, "z")
    with pytest.raises(TransientError, match=r"c-0: a batch of plain records \(1000 bytes\) is"):
        task.run()
