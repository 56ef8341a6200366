"""Restores: what they void (R3), what a task does about them (R4), how it goes back (R5)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.core import actions as do
from framework.core.changelog_fold import extend_lineage, is_void
from framework.core.task_topology import wire
from framework.core.topology import Stage, Stream, Topology
from framework.errors import Halted
from protocol.commit import ProducerLineage
from protocol.control import decode_restore, encode_restore
from protocol.ids import LineageEntry, TopicPartition
from tests.core.scenario import A0, A1, IN, INNER, JOB, OUT, Log, Producer, Scenario, T, running


def commit(task: Scenario, version: int, *producers: Producer) -> None:
    """Have all producers send the marker of a version, and the task read it."""
    for producer in producers:
        producer.mark(version)
    task.read()
    assert task.core.frozen == version


# --- R3: void ---------------------------------------------------------------------------------------------------------

HISTORIES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), max_size=8)


def all_incarnations(steps: list[tuple[int, int]]) -> list[LineageEntry]:
    """Return a lineage without any pruning: generations grow by the first, versions are the second of each pair."""
    entries, generation = [], 0
    for more, restored in steps:
        generation += more
        entries.append(LineageEntry(generation, restored))
    return entries


@given(HISTORIES, st.integers(0, 30), st.integers(0, 7))
def test_void_by_any_known_later_incarnation(steps: list[tuple[int, int]], generation: int, version: int) -> None:
    """(u, g, v) is void iff some later generation restored to a version < v: the pruned lineage says the same (R3)."""
    entries = all_incarnations(steps)
    pruned: tuple[LineageEntry, ...] = ()
    for entry in entries:
        pruned = extend_lineage(pruned, entry)
    assert is_void(pruned, generation, version) == any(g > generation and r < version for g, r in entries)


@given(HISTORIES)
def test_a_pruned_lineage_is_short(steps: list[tuple[int, int]]) -> None:
    """Both generations and versions grow: it has at most one entry for each version that was ever restored (R3)."""
    pruned: tuple[LineageEntry, ...] = ()
    for entry in all_incarnations(steps):
        pruned = extend_lineage(pruned, entry)
        assert pruned[-1] == entry
    assert [e.restored for e in pruned] == sorted({e.restored for e in pruned})
    assert [e.generation for e in pruned] == sorted({e.generation for e in pruned})


def test_void_records_still_in_the_stream_are_dropped() -> None:
    """In another partition the dead incarnation's records are still to be read: lineage voids them (R3)."""
    task, streams, producer = diamond()
    first, second = streams
    producer.send(1, "kept", to=second)
    producer.send(2, "void", to=second)
    producer.restore(1, first)  # the other partition has not heard of it yet
    task.read(first)
    task.read(second)
    assert (task.open, task.core.seen["void records dropped"]) == (["kept"], 1)


def test_the_whole_lineage_counts_not_only_the_newest_generation() -> None:
    """Generation 2 went back to 1, generation 3 to 2: what 1 made for version 2 stays void, what 2 made counts (R3)."""
    task, (first, second), producer = diamond()
    producer.send(2, "void", to=second)
    producer.restore(1)
    producer.send(2, "counts", to=second)
    producer.restore(2, first)
    task.read(first)
    task.read(second)
    producer.announce(second)
    producer.mark(2)
    task.read()
    assert task.core.inputs.known[A0] == ((1, 0), (2, 1), (3, 2))
    assert task.versions[2] == ["counts"]


# --- R4: what a restore does ------------------------------------------------------------------------------------------


def test_a_restore_of_a_slower_tasks_producer_changes_nothing_else() -> None:
    """R > L(d): the producer is ahead, which is normal; its restore implies its markers up to R (R2, R4)."""
    task, a0, a1 = running()
    a0.send(1, "1")
    a0.send(2, "2")
    a0.restore(2)
    task.read()
    assert (task.open, task.core.generation) == (["1"], 1)
    assert task.core.seen["restores ahead of the task"] == 1
    commit(task, 2, a1)
    assert task.versions == {0: [], 2: ["1", "2"]}


def test_a_restore_without_void_records_in_the_open_layer_does_not_roll_back() -> None:
    """Untouched: the lineage is entered, the task goes on with its generation (R4)."""
    task, a0, a1 = running()
    a1.send(1, "of the other producer")
    a0.restore(0)
    a0.send(1, "anew")
    task.read()
    assert (task.open, task.core.generation, task.core.seen["roll backs"]) == (["of the other producer", "anew"], 1, 0)
    commit(task, 1, a0, a1)


def test_a_restore_that_voids_what_was_processed_rolls_back() -> None:
    """The layer is dropped, a new generation claimed and announced, and the commit's offsets are read again (R4)."""
    task, a0, a1 = running()
    commit(task, 1, a0, a1)
    resume = len(task.log.rows[T])
    a1.send(2, "survives")
    a0.send(2, "void")
    a0.restore(1)
    a0.send(2, "instead")
    done = task.read()
    kinds = [type(action) for action in done if not isinstance(action, do.Process)]
    assert kinds == [do.DropOpen, do.ClearSpill, do.AppendChangelog, do.Send, do.Send, do.Seek]
    assert done[-3] == do.Seek(T, resume)
    assert (task.core.generation, task.open) == (2, ["survives", "instead"])
    restore = decode_restore(task.all(do.Send)[-1].value)
    assert (restore.header.generation, restore.header.version, restore.lineage) == (2, 1, ((1, 0), (2, 1)))


def test_after_a_roll_back_only_what_counts_is_committed() -> None:
    """Each record that was not taken back is in the state once; void ones are not (R4)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.send(2, "void, early")
    a1.send(1, "y")
    a0.restore(0)
    a0.send(1, "x again")
    commit(task, 1, a0, a1)
    assert task.state == ["y", "x again"]
    assert task.core.seen["roll backs"] == 1


def test_buffered_void_records_are_dropped_without_a_roll_back() -> None:
    """Void records that wait in the early buffer are taken out; nothing they did is in the layer (R4)."""
    task, a0, a1 = running()
    a0.send(1, "x")
    a0.send(2, "void")
    a0.restore(1)
    a0.send(2, "instead")
    commit(task, 1, a1)
    commit(task, 2, a0, a1)
    assert (task.state, task.core.seen["roll backs"]) == (["x", "instead"], 0)


def test_a_roll_back_waits_for_the_commit_in_flight() -> None:
    """The frozen version is finished first: it holds nothing void; then the open layer goes (R4)."""
    task, a0, a1 = running()
    task.hold.add(do.AppendChangelog)
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    a0.send(2, "void")
    a0.restore(1)
    a0.send(2, "instead")
    task.read()
    assert (task.open, task.core.wants_input, task.all(do.DropOpen)) == (["void"], False, [])
    task.release()
    task.read()
    assert (task.versions[1], task.open) == (["x"], ["instead"])
    assert [c.version for c in task.log.commits(INNER)] == [0, 1]


def test_a_roll_back_empties_the_early_buffer() -> None:
    """What waited in it is read again from the stream, and processed once (R4, A5)."""
    task, a0, a1 = running()
    a1.send(2, "early")
    a0.send(1, "void")
    a0.restore(0)
    for version in (1, 2):
        a0.mark(version)
        a1.mark(version)
    task.read()
    assert (task.state, task.core.seen["roll backs"]) == (["early"], 1)


def test_a_roll_back_forgets_what_markers_have_proved() -> None:
    """They are read again, behind the records that they vouch for: else those would be left out (R4, A6)."""
    streams = (Stream("j.a.t.c", 0, 2, 1), Stream("j.b.u.c", 1, 2, 1))
    fan_in = wire(Topology("j", (Stage("a", 0, 1), Stage("b", 1, 1), Stage("c", 2, 1)), streams), 2, 0)
    log = Log()
    (a, t), (b, u) = fan_in.channels
    first, second = (Producer(log, of, at, fingerprint=fan_in.fingerprint) for of, at in ((a, t), (b, u)))
    first.restore(0)
    second.restore(0)
    first.send(1, "vouched for")
    first.mark(1)
    second.send(1, "void")
    task = Scenario(log, fan_in).start()
    task.read()
    second.restore(0)
    second.mark(1)
    task.read(u)
    assert (task.core.seen["roll backs"], task.core.frozen, task.open) == (1, 0, [])
    task.read(t)
    assert task.versions[1] == ["vouched for"]


def test_a_roll_back_takes_back_the_seqs_of_outputs() -> None:
    """What was sent for the dropped version is void by the restore; its seqs are given out again (R2, R4)."""
    task, a0, _ = running()
    a0.send(1, "void")
    task.read()
    task.emit(OUT[0], "out 1", "out 2")
    task.flush()
    a0.restore(0)
    task.read()
    task.emit(OUT[0], "out again")
    task.flush()
    assert [(h.generation, h.version, h.seq) for h in task.sent(OUT[0])] == [(1, 0, 1), (1, 1, 1), (2, 0, 1), (2, 1, 1)]


def test_a_restore_below_what_is_committed_halts() -> None:
    """R < L(d) cannot be: the producer's changelog was cut, and a person must look (R4)."""
    task, a0, a1 = running()
    commit(task, 1, a0, a1)
    commit(task, 2, a0, a1)
    a0.restore(1)
    with pytest.raises(Halted, match="went back to version 1, but 2 is committed here: its changelog was cut"):
        task.read()


def test_a_stale_restore_is_ignored() -> None:
    """Re-read, or late from a zombie: g' is not above the last generation announced in this channel (R4)."""
    task, a0, _ = running(generations=(3, 1))
    a0.send(1, "x")
    task.read()
    zombie = Producer(task.log, A0)
    zombie.restore(0, generation=2)
    task.log.append(T, task.log.rows[T][0][1])  # generation 3's, again
    task.read()
    a0.send(1, "y")
    task.read()
    assert (task.open, task.core.seen["stale restores"]) == (["x", "y"], 2)


def test_a_producer_of_another_topology_halts() -> None:
    """A restore that shows a fingerprint of none of the job's graphs comes from other code (1.2)."""
    task, *_ = running()
    other = Producer(task.log, A0, fingerprint=replace(JOB, job="k").fingerprint())
    other.restore(0, generation=2)
    with pytest.raises(
        Halted, match=r"another graph of the job: .* 0x\w+, this code's 0x.* Start all workers with one"
    ):
        task.read()


def test_a_restore_whose_lineage_lacks_itself_halts() -> None:
    """The lineage ends with the incarnation that announces it: what else it says cannot be relied on (R2)."""
    task, *_ = running()
    task.log.append(T, encode_restore(A0, 2, 0, 1, JOB.fingerprint(), [LineageEntry(1, 0)]))
    with pytest.raises(Halted, match="does not end with itself"):
        task.read()


# --- R4: skipping channels --------------------------------------------------------------------------------------------


def test_a_channel_stops_skipping_if_all_it_skipped_is_void() -> None:
    """The restore sets its seq, and what follows is taken at once (R4)."""
    task, a0, a1 = running(early_bytes_max=0)
    a0.send(2, "void")
    a0.restore(0)
    a0.send(1, "x")
    task.read()
    assert (task.core.inputs.skipping, task.open) == (False, ["x"])
    commit(task, 1, a0, a1)
    assert task.core.seen["seeks back"] == 0


def test_a_channel_keeps_skipping_if_some_of_it_counts() -> None:
    """What was skipped at or below R still has to be read: the seq stays until the seek back (R4)."""
    task, a0, a1 = running(early_bytes_max=0)
    a0.send(1, "x")
    a0.send(2, "skipped")
    a0.send(3, "void")
    a0.restore(2)
    a0.send(3, "instead")
    task.read()
    assert task.core.inputs.skipping
    for version in (1, 2, 3):
        a0.mark(version)
        a1.mark(version)
    task.read()
    assert task.state == ["x", "skipped", "instead"]


# --- R4: one table for all channels -----------------------------------------------------------------------------------


def diamond() -> tuple[Scenario, tuple[TopicPartition, TopicPartition], Producer]:
    """Return a task that reads one producer through two streams."""
    streams = (Stream("j.a.s3.b", 0, 1, 1), Stream("j.a.s4.b", 0, 1, 1))
    wiring = wire(Topology("j", (Stage("a", 0, 1), Stage("b", 1, 1)), streams), 1, 0)
    log, partitions = Log(), (TopicPartition("j.a.s3.b", 0), TopicPartition("j.a.s4.b", 0))
    producer = Producer(log, A0, *partitions, fingerprint=wiring.fingerprint)
    producer.restore(0)
    task = Scenario(log, wiring).start()
    task.read()
    return task, partitions, producer


def test_a_producers_restore_rolls_a_diamond_back_once() -> None:
    """One table for all channels: the second channel's restore only sets that channel (R4)."""
    task, (first, second), producer = diamond()
    producer.send(1, "void", to=first)
    producer.send(1, "void too", to=second)
    producer.restore(0, first)
    producer.send(1, "x", to=first)
    task.read()
    producer.announce(second)
    producer.send(1, "y", to=second)
    task.read()
    assert (task.open, task.core.seen["roll backs"], task.core.seen["restores"]) == (["x", "y"], 1, 2)
    producer.mark(1)
    task.read()
    assert task.state == ["x", "y"]


def test_a_diamonds_second_channel_may_commit_before_it_hears_of_the_restore() -> None:
    """The generation announced is that of a channel, and part of the commit: the later restore is not stale (R4)."""
    task, (first, second), producer = diamond()
    producer.send(1, "x", to=second)
    producer.mark(1)
    producer.restore(1, first)
    task.read()
    assert task.core.frozen == 1
    producer.announce(second)
    producer.send(2, "y", to=second)
    after = task.successor().start()
    after.read()
    assert after.open == ["y"]
    assert {(p.topic, c.generation) for (_, p), c in after.core.inputs.channels.items()} == {
        (first.topic, 2),
        (second.topic, 2),
    }


# --- what a restart knows ---------------------------------------------------------------------------------------------


def test_lineages_survive_a_restart() -> None:
    """What is known of the producers is part of the commit: void records read after a restart stay void (R3, 1.2)."""
    task, a0, a1 = running()
    a0.restore(0)
    commit(task, 1, a0, a1)
    [of_commit] = task.log.commits(INNER)[1:]
    assert of_commit.known == (ProducerLineage(A0, ((1, 0), (2, 0))), ProducerLineage(A1, ((1, 0),)))  # type: ignore[arg-type]
    after = task.successor(same_host=False).start()
    assert after.core.inputs.known == {A0: ((1, 0), (2, 0)), A1: ((1, 0),)}


def test_an_own_lineage_grows_with_each_start_and_each_roll_back() -> None:
    """Every incarnation is announced with all that still void something: (generation, version it went back to) (R2)."""
    task, a0, a1 = running()
    commit(task, 1, a0, a1)
    after = task.successor().start()
    after.read()
    a0.send(2, "void")
    a0.restore(1)
    after.read()
    restores = [decode_restore(send.value) for send in after.all(do.Send) if send.partition == OUT[0]]
    assert [restore.lineage for restore in restores] == [((1, 0), (2, 1)), ((1, 0), (3, 1))]


def test_a_roll_back_forgets_that_inputs_have_ended() -> None:
    """It goes back to a position before the end: a commit must not say that the end was reached (A2b, R4)."""
    mixed = wire(replace(JOB, external_inputs={1: (IN.topic,)}), 1, 0)
    log = Log()
    a0, a1 = Producer(log, A0, fingerprint=mixed.fingerprint), Producer(log, A1, fingerprint=mixed.fingerprint)
    a0.restore(0)
    a1.restore(0)
    task = Scenario(log, mixed).start()
    a0.send(1, "void")
    task.read()
    task.take_external("outside", ended=True)
    a0.restore(0)
    task.read()
    assert (task.position[IN], task.core.external[IN]) == (0, 0)
    a0.mark(1, at_end=True)
    a1.mark(1, at_end=True)
    task.read()
    assert [commit.at_end for commit in log.commits(mixed)] == [False, False]
