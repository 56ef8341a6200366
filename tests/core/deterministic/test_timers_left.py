"""Timers of a deterministic task that are due and left: what leaves, commits and stops between their slices (E10)."""

from dataclasses import replace

from grete.core import actions as do
from grete.core import events as on
from grete.core.deterministic.logical_watermarks import STEP_US
from grete.core.deterministic.source import Source
from grete.core.external_inputs import ExternalInputs
from grete.protocol.changelog import InputDecision
from grete.protocol.commit import Commit, DeterministicCommit
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import CallResult, CallsNote
from tests.core.deterministic.scenario import Logical, Writer
from tests.core.scenario import LIMITS
from tests.core.streams import A0, A1, ALONE, IN, INNER, SOURCE, Log

G = STEP_US
TO = SOURCE.outputs[0]


def source() -> Logical:
    """Return a running source by event time, whose slices the test lets fire."""
    task = Logical(Log(), replace(SOURCE, keeps_time=True)).start()
    task.waits = True
    task.route = lambda _: TO
    return task


def leaving() -> Logical:
    """Return a source that has taken x, y, z as one decision: y has made timers due that are left."""
    task = source()
    task.leaves, task.taken = [True, True], (2, 2)
    task.take("x", "y", "z")
    return task


def last(task: Logical) -> tuple[Commit, DeterministicCommit]:
    """Return the commit that is valid last."""
    commit = task.core.commits.committed
    assert commit is not None
    assert commit.deterministic is not None
    return commit, commit.deterministic


def test_outputs_leave_between_slices_and_time_behind_the_last() -> None:
    """Nobody downstream may take the time of the decision for passed before all of it was made (D1)."""
    task = leaving()
    sent, t = len(task.frames(TO)), task.processed[1][1]
    assert (sent, task.progress_messages(TO)) == (1, [])
    assert not task.core.wants_input
    task.fire(("timer", t, A0))
    assert (len(task.frames(TO)), task.progress_messages(TO)) == (2, [])
    task.fire(("another", t, A0))
    assert len(task.frames(TO)) == 3
    assert task.progress_messages(TO) == [task.core.time.floor]
    assert task.core.wants_input


def test_nothing_of_a_slice_leaves_before_its_decision_is_valid() -> None:
    """A successor that never knows of the decision would make others of these times (C3)."""
    task = source()
    task.hold, task.leaves = {do.AppendChangelog}, [True]
    task.take("x")
    task.fire(("timer", task.processed[0][1], A0))
    assert task.frames(TO) == []
    task.release()
    assert len(task.frames(TO)) == 2


def test_a_commit_between_slices_ends_the_decision() -> None:
    """It has the rows up to the one that moved time; what is behind them is read again once it is valid."""
    task = leaving()
    end = task.core.source.batches[0].decision.last_t
    task.hold = {do.WriteData}
    task.tick(100)
    assert (task.all(do.Freeze)[-1].checkpoint_id, task.core.fires) == (task.core.frozen, False)
    task.release()
    commit, deterministic = last(task)
    assert [each.offset for each in commit.external] == [2]
    assert (deterministic.position, deterministic.last_t) == (2, end)
    assert task.all(do.Seek)[-1] == do.Seek(IN, 2)
    assert task.progress_messages(TO) == []
    task.fire()
    task.fire()
    assert max(task.progress_messages(TO)) >= end
    del task.rows[2:]
    task.take("z")
    assert task.processed[-1][1] > end


def test_a_successor_fires_what_a_commit_has_left() -> None:
    """Before it replays what was decided since, or takes anything new; and it may commit again between the slices."""
    task = leaving()
    task.tick(100)
    after = task.successor()
    after.waits, after.leaves = True, [True, True]
    after.start()
    assert not after.core.wants_input
    after.fire()
    after.tick(200)
    assert last(after)[0].checkpoint_id > last(task)[0].checkpoint_id
    assert [each.offset for each in last(after)[0].external] == [2]
    after.fire()
    after.fire()
    assert after.core.wants_input


def test_nothing_is_dropped_behind_the_last_row_or_a_note() -> None:
    """A commit there has the whole decision, and what is read goes on."""
    task = source()
    task.leaves, task.taken = [True], (1, 1)
    task.take("x")
    task.tick(100)
    task.fire()
    task.leaves, task.taken, seeks = [True], (0, -1), len(task.all(do.Seek))
    task.step(on.InputIdle(IN, task.mono_ms * 1_000))
    task.tick(100)
    assert last(task)[1].last_t == task.idle[0][1]
    assert [each.offset for each in last(task)[0].external] == [1]
    task.fire()
    assert len(task.all(do.Seek)) == seeks


def test_a_replay_commits_nothing_between_slices() -> None:
    """Others may have seen what follows in it: it must come at the times that it had (D2)."""
    task = source()
    task.take("x")
    task.take("y")
    after = task.successor()
    after.waits, after.leaves = True, [False, True]
    after.start()
    frozen = after.core.frozen
    after.fire()
    assert after.names == ["x"]
    after.tick(1_000)
    assert (after.core.frozen, after.core.fires) == (frozen, True)
    after.fire()
    assert after.names == ["x", "y"]
    after.tick(100)
    assert [each.offset for each in last(after)[0].external] == [2]


def test_a_stop_ends_a_replay_between_slices() -> None:
    """It commits nothing, and the next start replays the same."""
    task = source()
    task.take("x")
    after = task.successor()
    after.waits, after.leaves = True, [False, True]
    after.start()
    after.step(on.Stop())
    assert after.core.fires, "whether timers are left is not known yet"
    after.acks = False
    after.fire()
    assert (after.names, after.core.fires, after.exit) == (["x"], False, None)
    after.step(on.Acked(after.core.sender.token))
    assert after.exit == do.Exit(f"stopped at checkpoint {task.core.frozen}")
    assert after.successor().start().names == ["x"]


def test_a_stop_between_slices_commits_and_ends() -> None:
    """It does not wait for the timers: they are in the commit."""
    task = leaving()
    task.step(on.Stop())
    assert task.exit == do.Exit(f"stopped at checkpoint {last(task)[0].checkpoint_id}")
    assert [each.offset for each in last(task)[0].external] == [2]


def test_results_of_calls_are_logged_before_the_next_slice() -> None:
    """Nothing made with them is sent before, and no checkpoint closes meanwhile (D8)."""
    task = source()
    task.leaves, task.taken, task.calls = [True], (1, 1), [CallsNote(((0, (CallResult(ok=True, data=b"1"),)),))]
    task.hold, frozen = {do.AppendChangelog}, task.core.frozen
    task.take("x")
    task.tick(100)
    assert (task.core.fires, task.core.frozen) == (False, frozen)
    task.release()
    assert len(task.frames(TO)) == 1
    assert task.core.frozen > frozen


def test_nothing_is_cut_while_records_go_on_behind_the_timers() -> None:
    """Their calls are under way, so they are in no state yet: neither a commit nor a slice comes before they end."""
    task = leaving()
    task.step(on.Ran(0, left=True, done=-1))
    frozen = task.core.frozen
    task.tick(100)
    assert (task.core.frozen, task.core.fires, task.core.wants_input) == (frozen, False, False)
    task.step(on.Ran(0, left=True, next_offset=2, done=2))
    assert task.core.frozen > frozen
    assert [each.offset for each in last(task)[0].external] == [2]


def test_records_for_the_outside_are_released_between_slices() -> None:
    """They do not wait for the others of a million timers, though more rows are at hand (D5)."""
    task = Logical(Log(), replace(ALONE, keeps_time=True), sink=True).start()
    task.waits, task.leaves, task.taken = True, [True], (1, 1)
    task.take("x", more=True)
    assert task.outside == ["x"]
    task.fire(("timer", task.processed[0][1], A0))
    assert task.outside == ["x", "timer"]


def merging() -> tuple[Logical, Writer, Writer]:
    """Return a task behind others by event time, whose slices the test lets fire, and its two producers."""
    log = Log()
    task = Logical(log, replace(INNER, keeps_time=True), limits=replace(LIMITS, checkpoint_interval_ms=100)).start()
    task.waits = True
    return task, Writer(log, A0), Writer(log, A1)


def test_a_commit_has_nothing_of_what_was_merged_behind_the_watermark() -> None:
    """Records and watermarks behind it are taken again, in the same order, by this task and by a successor."""
    task, a0, a1 = merging()
    a0.send(("x", 5, A0))
    a0.watermarks((G, 10))
    a0.send(("y", G + 5, A0))
    a0.watermarks((2 * G, 20))
    a1.send(("u", 4, A1), ("v", G + 1, A1), ("w", 2 * G + 1, A1))
    a0.progress(3 * G)
    a1.progress(3 * G)
    task.leaves, task.taken = [False, True, True], (1, -1)
    task.read()
    assert (task.names, [m.t for m, _ in task.merged]) == (["u", "x", "v", "y", "w"], [G, 2 * G])
    task.tick(100)
    assert {frontier.t for frontier in last(task)[1].frontiers} == {G, G + 4}
    assert (task.core.covered_t, task.core.seen["given back"]) == (0, 1)
    after = task.successor().start()
    after.read()
    task.processed.clear()
    task.merged.clear()
    task.waits = False
    task.step(on.InputRead())
    assert task.names == after.names == ["v", "y", "w"]
    assert [m.t for m, _ in task.merged] == [m.t for m, _ in after.merged] == [2 * G]


def test_what_was_merged_behind_the_watermark_comes_behind_its_timers() -> None:
    """Without a commit it waits, and is not taken again; a later commit between slices gives nothing back, either."""
    task, a0, a1 = merging()
    a0.watermarks((G, 10))
    a0.send(("x", G + 5, A0))
    a1.progress(2 * G)
    a0.progress(2 * G)
    task.leaves, task.taken = [True, True, True], (1, -1)
    task.read()
    task.fire()
    task.tick(100)
    task.tick(100)
    assert task.core.seen["given back"] == 1
    task.waits = False
    task.step(on.InputRead())
    assert task.names == ["x", "x"], "the code of this test does not wait with it, so it takes it twice"


def test_a_decision_may_end_later_than_its_rows() -> None:
    """Rows that it had were taken by the next one: what is told of event time behind it goes by its end (E2)."""
    log, given = TopicPartition("in", 0), 4
    external = ExternalInputs([log])
    external.begin({log: (0, given)})
    task = Logical(Log(), SOURCE)
    replayed = Source("a-0", external, task.core.time)
    replayed.replay.extend((InputDecision(*log, 0, 2, 10, 13), InputDecision(*log, 2, 2, 20, 21)))
    assert replayed.replay_next() == do.ProcessExternal(log, 0, 2, 10, replay=True, last_t=13)
    replayed.replayed(2)
    assert replayed.replay_next() == do.ProcessExternal(log, 2, 2, 20, replay=True)
