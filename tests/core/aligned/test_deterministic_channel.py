"""An aligned task behind deterministic ones (A2b): it takes their records by seq, once, and awaits no marker."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from grete.core import events as on
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.errors import ConfigError, Halted
from grete.protocol.commit import Commit
from grete.protocol.control import encode_marker, encode_watermark
from grete.protocol.ids import TopicPartition
from tests.core.deterministic.scenario import Writer
from tests.core.scenario import LIMITS, Scenario, running
from tests.core.streams import Log, Producer, frame

# a (two tasks, deterministic) → c ← b (one task, aligned); d reads of a alone
STAGES = (Stage("a", 0, 2), Stage("b", 1, 1), Stage("c", 2, 1), Stage("d", 3, 1))
STREAMS = (Stream("j.a.t.c", 0, 2, 1), Stream("j.b.u.c", 1, 2, 1), Stream("j.a.t.d", 0, 3, 1))
JOB = Topology("j", STAGES, STREAMS, {0: ("in",), 1: ("in",)}, frozenset({0}))
BEHIND_BOTH, BEHIND = wire(JOB, 2, 0), wire(JOB, 3, 0)
A0, A1, B = 0, 1, 1 << 16
FROM_A, FROM_B, ALONE = (TopicPartition(stream.topic, 0) for stream in STREAMS)


def alone() -> tuple[Scenario, Writer, Writer]:
    """Return a task that reads of deterministic producers only, running, and those."""
    log = Log()
    return Scenario(log, BEHIND).start(), Writer(log, A0, ALONE), Writer(log, A1, ALONE)


def between() -> tuple[Scenario, Writer, Producer]:
    """Return a task that reads of a deterministic producer and of an aligned one, running, and those."""
    log = Log()
    b = Producer(log, B, FROM_B, fingerprint=BEHIND_BOTH.fingerprint)
    b.rollback_marker(0)
    task = Scenario(log, BEHIND_BOTH).start()
    task.read()
    return task, Writer(log, A0, FROM_A), b


def last_commit(task: Scenario) -> Commit:
    """Return the last commit."""
    return task.log.commits(task.task)[-1]


def test_the_wiring_tells_whose_markers_are_awaited() -> None:
    """1.8 A1: a task with only external or deterministic inputs is a source; a deterministic one awaits none."""
    assert (BEHIND.logical, BEHIND.is_source) == (frozenset({A0, A1}), True)
    assert (BEHIND_BOTH.logical, BEHIND_BOTH.is_source) == (frozenset({A0, A1}), False)
    deterministic = replace(JOB, deterministic=frozenset({0, 3}))
    behind = wire(deterministic, 3, 0)
    assert (behind.deterministic, behind.logical, behind.is_source) == (True, frozenset(), False)
    assert [JOB.is_source(stage) for stage in range(4)] == [True, True, False, True]
    assert not deterministic.is_source(3)


def test_it_closes_checkpoints_by_its_clock_and_commits_how_far_each_channel_is() -> None:
    """No marker is awaited; seq, resume offset, time and digest of each channel are part of the checkpoint (A2b)."""
    task, a0, a1 = alone()
    a0.send(("x", 100, A0), ("y", 200, A0))
    a1.send(("z", 150, A1))
    a0.progress(300)
    task.read()
    assert task.open == ["x", "y", "z"]
    task.tick(100)
    assert (task.core.frozen, task.state) == (1_100, ["x", "y", "z"])
    [entry] = last_commit(task).inputs
    assert (entry.resume, [(c.producer, c.seq) for c in entry.channels]) == (3, [(A0, 2), (A1, 1)])
    time = last_commit(task).deterministic
    assert time is not None
    assert [(f.producer, f.t, f.digest) for f in time.frontiers] == [(A0, 300, a0.digest), (A1, -1, a1.digest)]
    assert task.log.start[ALONE] == 3


def test_the_last_commit_has_what_time_has_passed_over_since() -> None:
    """An observer need not wait for a commit that only says so (A2b)."""
    task, a0, a1 = alone()
    a0.send(("x", 100, A0))
    a0.progress(150)
    a1.progress(300)
    task.read()
    assert task.core.covered_t == 0
    task.tick(100)
    assert task.core.covered_t == 150
    a0.progress(200)
    task.read()
    assert task.core.covered_t == 200
    assert running()[0].core.covered_t == 0  # it has no such channel


def test_a_watermark_is_taken_in_its_place_and_once() -> None:
    """A watermark that a successor repeats changes nothing, nor does its idleness; so after a restart (E3)."""
    task, a0, a1 = alone()
    a0.send(("x", 100, A0))
    a0.watermarks((5_000, 10), (10_000, 20))
    a0.send(("y", 11_000, A0))
    a0.watermarks((15_000, 30))
    a0.progress(15_000)
    task.read()
    task.tick(100)
    a1.watermarks((5_000, 7), idle=True)
    a0.again().watermarks((15_000, 30))
    task.read()
    assert task.state + task.open == ["x", "@20", "y", "@30", "@7"]
    assert task.core.seen["known watermarks dropped"] == 1
    after = task.successor().start()
    a0.again().watermarks((15_000, 30))
    after.read()
    assert after.state + after.open == ["x", "@20", "y", "@30", "@7"]


def test_events_of_deterministic_mode_are_mistakes_of_the_driver() -> None:
    """A driver that feeds batches to an aligned task shows at once."""
    with pytest.raises(AssertionError, match="belongs to deterministic mode"):
        alone()[0].step(on.InputRead())


def test_an_idle_one_closes_too() -> None:
    """As any source does (A1): who reads it waits for its checkpoints."""
    task, *_ = alone()
    task.tick(100)
    task.tick(100)
    assert [commit.checkpoint_id for commit in task.log.commits(BEHIND)] == [0, 1_000, 1_100, 1_200]
    assert not any(commit.at_end for commit in task.log.commits(BEHIND))  # its frontiers tell, not a flag


def test_checkpoint_ids_of_deterministic_records_say_nothing() -> None:
    """The checkpoints of their producer are its own.

    A record of any checkpoint id belongs to the checkpoint that is open (A4).
    """
    task, a0, _ = alone()
    task.tick(100)
    a0.send(("late by its checkpoint id", 100, A0))
    task.read()
    task.tick(100)
    assert task.committed[1_200] == ["late by its checkpoint id"]


def test_what_is_made_again_is_dropped() -> None:
    """A successor of the producer makes the same again; what is new in a frame of both is taken (D3)."""
    task, a0, _ = alone()
    a0.send(("x", 100, A0), ("y", 200, A0))
    task.read()
    a0 = a0.again()
    a0.send(("x", 100, A0))
    a0.send(("y", 200, A0), ("z", 300, A0))
    task.read()
    assert task.open == ["x", "y", "z"]
    assert (task.core.seen["known records dropped"], task.core.seen["digests compared"]) == (2, 0)


def test_a_restart_goes_on_behind_what_its_commit_holds() -> None:
    """The stream is read from the commit's resume offset; what the commit holds is dropped (D3)."""
    task, a0, a1 = alone()
    a0.send(("x", 100, A0))
    task.read()
    task.tick(100)
    a1.send(("not committed", 100, A1))
    task.read()
    a0 = a0.again()
    a0.send(("x", 100, A0), ("y", 200, A0))
    after = task.successor().start()
    after.read()
    assert after.open == ["not committed", "y"]
    after.tick(100)
    assert after.state == ["x", "not committed", "y"]


def lost_record(a0: Writer) -> None:
    """Leave a record out."""
    a0.next_seq += 1
    a0.send(("z", 900, A0))


def lost_before_progress(a0: Writer) -> None:
    """Leave a record out, and be idle."""
    a0.next_seq += 1
    a0.progress(900)


def other_record(a0: Writer) -> None:
    """Make something else."""
    a0.again().send(("other", 100, A0))


def other_digest(a0: Writer) -> None:
    """Have made something else before."""
    a0.generation, a0.digest = 2, a0.digest ^ 1
    a0.send(("z", 900, A0))


def without_time(a0: Writer) -> None:
    """Send as an aligned task does."""
    a0.log.append(ALONE, frame(A0, 2, 1, 2, "z"))


def marker(a0: Writer) -> None:
    """Send a marker."""
    a0.log.append(ALONE, encode_marker(A0, 1, 1, 2, at_end=False))


def lost_before_watermark(a0: Writer) -> None:
    """Tell event time behind a record that is not there."""
    a0.next_seq = 3
    a0.watermarks((200, 5))


def watermark_without_time(a0: Writer) -> None:
    """Tell event time as an aligned task does."""
    a0.log.append(ALONE, encode_watermark(A0, 1, 1, 2, idle=False, watermarks=(5,)))


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (lost_record, "expected seq 2: a record was lost"),
        (lost_before_progress, "expected seq 2: a record before the progress message was lost"),
        (lost_before_watermark, "expected seq 2: a record before the watermark was lost"),
        (watermark_without_time, "no logical time: its producer is not deterministic"),
        (other_record, "record seq 1 was received before with value b'x', now b'other'"),
        (other_digest, "one or more of its records up to seq 1 are not what was received before"),
        (without_time, "no logical time: its producer is not deterministic"),
        (marker, "is deterministic and sends no such message"),
    ],
)
def test_what_cannot_be_halts_with_its_place(mistake: Callable[[Writer], None], text: str) -> None:
    """A lost record, one that is made again otherwise, and a producer that is not what it should be (D3)."""
    task, a0, _ = alone()
    a0.send(("x", 100, A0))
    task.read()
    mistake(a0)
    with pytest.raises(Halted, match=text) as caught:
        task.read()
    assert "j.a.t.d[0] offset 1: producer 0 generation" in str(caught.value)


def test_a_digest_that_differs_from_the_commits_halts() -> None:
    """Records that a commit holds are gone; their digest tells that they are made otherwise (D3)."""
    task, a0, _ = alone()
    a0.send(("x", 100, A0))
    task.read()
    task.tick(100)
    after = task.successor().start()
    other = Writer(task.log, A0, ALONE)
    other.generation, other.next_seq = 2, 1
    other.digest = 0
    other.send(("other", 100, A0), ("y", 200, A0))
    with pytest.raises(Halted, match="up to seq 1 are not what was received before"):
        after.read()


def test_behind_both_the_alignment_is_of_the_aligned_producers() -> None:
    """A checkpoint closes with their markers, and holds what has come of the others by then (A6, A2b)."""
    task, a0, b = between()
    a0.send(("x", 100, A0))
    b.send(1, "b1")
    task.read()
    task.tick(1_000)
    assert task.core.frozen == 0
    b.mark(1)
    task.read()
    assert (task.core.frozen, task.committed[1]) == (1, ["x", "b1"])
    a0.send(("y", 200, A0))
    b.send(2, "b2")
    task.read()
    b.mark(2)
    task.read()
    assert task.committed[2] == ["y", "b2"]


def test_a_rollback_takes_deterministic_records_again() -> None:
    """They were in the write batch that is dropped; the stream still has them, as it is trimmed by commits (R4, K3)."""
    task, a0, b = between()
    a0.send(("x", 100, A0))
    b.send(1, "b1")
    b.mark(1)
    task.read()
    a0.send(("y", 200, A0))
    b.send(2, "rolled back")
    task.read()
    assert sorted(task.open) == ["rolled back", "y"]
    b.rollback_marker(1)
    b.mark(2)
    task.read()
    assert (task.core.seen["rollbacks"], task.committed[2]) == (1, ["y"])
    assert (task.state, last_commit(task).inputs[0].channels[0].seq) == (["x", "b1", "y"], 2)


def test_a_restart_of_a_deterministic_producer_rolls_nothing_back() -> None:
    """It sends no rollback marker: what it has sent stays, whatever it had committed (D4)."""
    task, a0, b = between()
    a0.send(("x", 100, A0))
    task.read()
    a0 = a0.again()
    a0.send(("x", 100, A0))
    b.mark(1)
    task.read()
    assert (task.core.generation, task.committed[1]) == (1, ["x"])


def test_what_was_skipped_of_others_leaves_deterministic_channels_where_they_are() -> None:
    """Seeking back for a skipped frame goes to the commit just frozen, which holds all of them (A5)."""
    log = Log()
    b = Producer(log, B, FROM_B, fingerprint=BEHIND_BOTH.fingerprint)
    b.rollback_marker(0)
    task = Scenario(log, BEHIND_BOTH, limits=replace(LIMITS, early_bytes_max=0)).start()
    a0 = Writer(log, A0, FROM_A)
    a0.send(("x", 100, A0))
    b.send(2, "early")
    b.mark(1)
    b.mark(2)
    task.read()
    a0.send(("y", 200, A0))
    task.read()
    assert task.core.seen["seeks back"] > 0
    assert (task.committed[1], sorted(task.state)) == (["x"], ["early", "x"])
    assert task.open == ["y"]


def test_a_stop_commits_what_was_taken() -> None:
    """As a source does (R6)."""
    task, a0, _ = alone()
    a0.send(("x", 100, A0))
    task.read()
    task.step(on.Stop())
    assert task.exit is not None
    assert task.state == ["x"]


def test_a_commit_of_other_modes_is_refused() -> None:
    """A job keeps the modes of its stages: what a commit says of a channel depends on who writes it."""
    before, _, _ = alone()
    aligned = wire(replace(JOB, deterministic=frozenset()), 3, 0)
    with pytest.raises(ConfigError, match="ran in another mode"):
        Scenario(before.log, aligned, nonce=b"another process!").start()
    after = Scenario(Log(), aligned).start()
    with pytest.raises(ConfigError, match="ran in another mode"):
        Scenario(after.log, BEHIND, nonce=b"another process!").start()
