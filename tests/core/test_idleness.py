"""Checkpoints that are left out: nothing is new, and no task awaits the markers (A1, A6, decision 0037)."""

from dataclasses import replace

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Topology
from grete.core.idleness import Idleness, longest_interval_ms
from grete.protocol.ids import producer_id
from tests.core.deterministic.scenario import Logical, Writer
from tests.core.scenario import LIMITS, Scenario
from tests.core.streams import A0, A1, INNER, SINK, SOURCE, Log, Producer

IDLE = replace(LIMITS, idle_checkpoint_interval_ms=1_000)  # ten checkpoints
ALONE = wire(Topology("j", (Stage("a", 0, 1),), (), {0: ("in",)}), 0, 0)
[OF_B] = {partition for _, partition in SINK.channels}


def sink(**limits: int) -> tuple[Scenario, Producer, Producer]:
    """Return a task of a last stage, which has committed checkpoint 2,000, and its producers."""
    log = Log()
    b0, b1 = (Producer(log, producer_id(1, number), OF_B) for number in range(2))
    for producer in (b0, b1):
        producer.rollback_marker(0)
    task = Scenario(log, SINK, limits=replace(IDLE, **limits)).start()
    task.read()
    task.commit(2_000, b0, b1)
    return task, b0, b1


def alone(*, aligned: bool = True) -> Scenario:
    """Return a running task of a job with one stage; it has committed 2,000."""
    task = Scenario(Log(), ALONE, limits=IDLE, aligned=aligned).start()
    task.tick(950)
    assert closed(task)[-1] == 2_000
    return task


def closed(task: Scenario) -> list[int]:
    """Return the checkpoints that the task has closed since the genesis."""
    return [freeze.checkpoint_id for freeze in task.all(do.Freeze)][1:]


def mark(task: Scenario, checkpoint_id: int, *producers: Producer) -> None:
    """Have the markers of a checkpoint sent and read."""
    for producer in producers:
        producer.mark(checkpoint_id)
    task.read()


@pytest.mark.parametrize(
    ("frozen", "checkpoint_id", "left_out"), [(2_000, 2_999, True), (2_000, 3_000, False), (2_999, 3_000, False)]
)
def test_idle_tasks_commit_at_multiples_of_the_idle_interval(frozen: int, checkpoint_id: int, left_out: bool) -> None:
    """Idle sources have checkpoints in common, whenever each of them was busy last."""
    idleness = Idleness(100, 1_000, awaited=False, grows=False)
    idleness.news = False
    assert idleness.leave_out(frozen, checkpoint_id) == left_out
    assert idleness.closed(frozen) == (checkpoint_id if left_out else frozen)


def test_an_idle_interval_that_is_not_longer_leaves_nothing_out() -> None:
    """Each checkpoint is closed then, as in a task whose markers are awaited."""
    for idleness in (Idleness(100, 100, awaited=False, grows=False), Idleness(100, 1_000, awaited=True, grows=False)):
        idleness.news = False
        idleness.observe(2_020, sees_next=True)
        assert not idleness.leave_out(2_010, 2_020)
    assert Idleness(100, 100, awaited=True, grows=False).put_off(2_010, 2_020) == 2_020


@pytest.mark.parametrize(("grows", "closed"), [(True, [3_000, 4_000, 8_000, 16_000, 32_000, 64_000]), (False, None)])
def test_the_idle_interval_doubles_while_a_rest_lasts(grows: bool, closed: list[int] | None) -> None:
    """Up to 32 of them; what is new ends the rest. All of a job's tasks have multiples in common."""
    idleness, frozen = Idleness(100, 1_000, awaited=False, grows=grows), 2_000
    idleness.froze(frozen)
    found = []
    for checkpoint_id in range(2_100, 70_000, 100):
        if not idleness.leave_out(frozen, checkpoint_id):
            frozen = checkpoint_id
            idleness.froze(frozen)
            found.append(frozen)
    assert found == (closed or [*range(3_000, 70_000, 1_000)])
    idleness.news = True
    idleness.froze(70_000)
    assert not idleness.leave_out(70_000, 71_000)


@pytest.mark.parametrize(
    ("interval_ms", "longest_ms"), [(100, 3_200), (10_000, 320_000), (60_000, 240_000), (600_000, 600_000)]
)
def test_a_long_idle_interval_grows_less(interval_ms: int, longest_ms: int) -> None:
    """A job whose idle interval is minutes does not rest for hours."""
    assert longest_interval_ms(interval_ms) == longest_ms


def test_a_last_stage_without_records_leaves_checkpoints_out() -> None:
    """It goes on reading the markers, and commits the first checkpoint behind a multiple of the idle interval (A6)."""
    task, b0, b1 = sink()
    for checkpoint_id in range(2_100, 3_300, 100):
        mark(task, checkpoint_id, b0, b1)
    assert closed(task) == [2_000, 3_000]
    assert task.core.idleness.closed(task.core.frozen) == 3_200


def test_what_was_left_out_is_committed_before_the_next_record() -> None:
    """The record belongs to the checkpoint behind it, and is committed with that one (A4)."""
    task, b0, b1 = sink()
    mark(task, 2_300, b0, b1)
    b0.send(2_301, "x")
    task.read()
    assert (closed(task), task.open) == ([2_000, 2_300], ["x"])
    mark(task, 2_400, b0, b1)
    assert (closed(task)[2:], task.committed[2_400]) == ([2_400], ["x"])
    mark(task, 2_500, b0, b1)
    assert closed(task)[3:] == []


def test_a_record_that_was_skipped_is_news() -> None:
    """The task goes back for it at once, not after an idle interval (A5)."""
    task, b0, b1 = sink(early_memory_bytes_max=0, early_bytes_max=0)
    mark(task, 2_300, b0, b1)
    b0.send(2_301, "x")
    task.read()
    assert (closed(task), task.open) == ([2_000, 2_300], ["x"])


def test_a_record_of_a_producer_ahead_waits_for_its_checkpoint() -> None:
    """Its producer has closed one that the other has not: nothing is closed before the alignment (A6)."""
    task, b0, b1 = sink()
    b0.mark(2_100)
    b0.send(2_101, "early")
    task.read()
    assert (closed(task), task.open) == ([2_000], [])
    mark(task, 2_100, b1)
    assert (closed(task), task.open) == ([2_000, 2_100], ["early"])


def test_a_restart_commits_at_the_next_checkpoint() -> None:
    """Its generation is in a commit then, and a supervisor sees that the worker gets on."""
    task, b0, b1 = sink()
    mark(task, 2_300, b0, b1)
    after = task.successor().start()
    after.read()
    mark(after, 2_400, b0, b1)
    assert [freeze.checkpoint_id for freeze in after.all(do.Freeze)] == [2_300]


def test_a_task_whose_markers_are_awaited_closes_each_checkpoint() -> None:
    """Its consumers could not close theirs without (A1)."""
    task = Scenario(Log(), SOURCE, limits=IDLE).start()
    for _ in range(3):
        task.tick(100)
    assert closed(task) == [1_000, 1_100, 1_200, 1_300]


def test_a_life_begins_with_the_commit_that_its_start_finds() -> None:
    """The genesis of a new task, else the predecessor's last one; what the life commits itself changes nothing."""
    task = alone()
    assert task.core.commits.began is not None
    assert task.core.commits.began.checkpoint_id == 0
    after = task.successor().start()
    after.tick(100)
    began, last = after.core.commits.began, after.core.commits.committed
    assert began is not None
    assert last is not None
    assert began.checkpoint_id == 2_000 < last.checkpoint_id


def resting() -> Scenario:
    """Return a source whose markers are awaited and which is told of others; it has committed 1,200, and is idle."""
    task = Scenario(Log(), SOURCE, limits=IDLE).start()
    task.tick(200)
    observe(task, 0)
    return task


def observe(task: Scenario, checkpoint_id: int, *, sees_next: bool = True) -> None:
    """Tell a source what a task beside it has observed."""
    task.step(on.CheckpointObserved(task.mono_ms, checkpoint_id, sees_next))


def test_an_idle_source_closes_what_others_close() -> None:
    """Nothing by its timer, as long as it would be told of them; each of theirs with their number, and at once (A1)."""
    task = resting()
    assert (closed(task), task.core.due_in_ms(task.mono_ms)) == ([1_000, 1_200], 50)
    task.tick(150)
    assert (closed(task), task.core.due_in_ms(task.mono_ms)) == ([1_000, 1_200], 600)  # at the multiple of a second
    observe(task, 1_400)
    assert closed(task) == [1_000, 1_200, 1_400]
    observe(task, 1_401)  # it has closed one in this interval: the next one finds it awake
    assert (closed(task), task.core.due_in_ms(task.mono_ms)) == ([1_000, 1_200, 1_400], 100)
    task.tick(100)
    assert closed(task) == [1_000, 1_200, 1_400, 1_401]
    assert task.core.idleness.closed(task.core.frozen) == 1_401


def test_an_idle_source_closes_a_multiple_by_its_own_number() -> None:
    """Sources whose turns are late by different times have closed the same checkpoint (A1)."""
    task = resting()
    task.tick(2_350)
    assert closed(task) == [1_000, 1_200, 3_000]
    assert task.core.due_in_ms(task.mono_ms) == 400


def test_an_idle_source_that_may_not_be_told_goes_by_its_timer() -> None:
    """The checkpoints that it has put off are closed at once (A1)."""
    task = resting()
    task.tick(150)
    observe(task, 0, sees_next=False)
    assert closed(task) == [1_000, 1_200, 1_400]
    task.tick(100)
    assert closed(task)[-1] == 1_500


def test_an_idle_source_closes_what_is_more_than_idleness() -> None:
    """A multiple of the idle interval, a record, its end, a checkpoint of which a task holds much, and a stop."""
    task = resting()
    task.tick(800)
    assert closed(task)[-2:] == [1_200, 2_000]
    task.take_external("x")
    task.tick(100)
    task.take_external(ended=True)
    task.tick(100)
    assert closed(task)[-2:] == [2_100, 2_200]
    task.tick(40)
    task.step(on.Tick(task.mono_ms, 0, asked=2_201))
    assert closed(task)[-1] == 2_201
    task.step(on.Stop())
    assert (closed(task)[-1], task.exit is not None) == (2_202, True)


def test_a_task_observes_checkpoints_while_it_is_idle() -> None:
    """The greatest marker of any producer, also while it commits; nothing while it has something to commit (A1)."""
    task, b0, b1 = sink()
    found = [task.core.observed_checkpoint]
    mark(task, 2_300, b0)
    found.append(task.core.observed_checkpoint)
    b1.send(2_001, "x")
    task.read()
    found.append(task.core.observed_checkpoint)
    task.hold.add(do.AppendChangelog)
    mark(task, 2_300, b0, b1)
    mark(task, 2_400, b0)
    assert task.core.commits.pending is not None
    assert [*found, task.core.observed_checkpoint] == [2_000, 2_300, None, 2_400]


@pytest.mark.parametrize("aligned", [True, False])
def test_a_source_that_no_task_reads_leaves_checkpoints_out(*, aligned: bool) -> None:
    """With a record it commits at the next checkpoint, as ever; at its end once more, as the end is news (A1, A2b)."""
    task = alone(aligned=aligned)
    task.tick(250)
    assert (closed(task)[-1], task.core.due_in_ms(task.mono_ms)) == (2_000, 50)
    task.take_external("x")
    assert closed(task)[-1] == 2_000
    task.tick(50)
    assert (closed(task)[-1], task.committed[2_300]) == (2_300, ["x"])
    task.tick(100)
    task.take_external(ended=True)
    task.tick(100)
    task.tick(100)
    assert closed(task)[-2:] == [2_300, 2_500]
    task.tick(500)
    assert closed(task)[-1] == 3_100


def test_a_timer_that_has_fired_is_news() -> None:
    """The writes of a timer are committed at the next checkpoint."""
    task = alone()
    task.open_bytes = 10
    task.tick(100)
    assert closed(task)[-1] == 2_100


def test_a_stop_of_an_idle_task_commits_once_more() -> None:
    """As that of any source (R6)."""
    task = alone()
    task.tick(150)
    task.step(on.Stop())
    assert (closed(task)[-1], task.exit is not None) == (2_101, True)


def test_at_least_once_every_message_is_news() -> None:
    """No markers come: what is read is records, or a rollback marker behind which the next start must begin (1.5)."""
    log = Log()
    b0 = Producer(log, producer_id(1, 0), OF_B)
    task = Scenario(log, SINK, limits=IDLE, aligned=False).start()
    task.tick(1_050)
    task.tick(100)
    assert closed(task)[-1] == 2_100
    b0.rollback_marker(0)
    task.read()
    task.tick(100)
    assert closed(task)[-1] == 2_300


def test_outputs_at_least_once_are_news() -> None:
    """They are sent before the commit, and numbered by it (1.5)."""
    task = Scenario(Log(), SOURCE, limits=IDLE, aligned=False).start()
    task.tick(1_050)
    task.emit(SOURCE.outputs[0], "x")
    task.flush()
    task.tick(100)
    assert closed(task)[-1] == 2_200


def test_a_deterministic_task_leaves_checkpoints_out() -> None:
    """Time that passes in its channels is no news; a record is, and so is what it made of a timer (D4)."""
    log = Log()
    task = Logical(log, INNER, limits=IDLE).start()
    a0, a1 = Writer(log, A0), Writer(log, A1)
    a0.progress(50)
    a1.progress(50)
    task.read()
    task.tick(1_000)
    assert closed(task)[-1] == 2_000
    for t in (100, 200):
        a0.progress(t)
        a1.progress(t)
        task.read()
        task.tick(100)
    assert (closed(task)[-1], task.core.covered_t, task.core.due_in_ms(task.mono_ms)) == (2_000, 200, 50)
    a0.send(("x", 250, A0))
    a0.progress(300)
    a1.progress(300)
    task.read()
    assert task.core.covered_t == 0
    task.tick(50)
    assert (closed(task)[-1], task.names, task.core.covered_t) == (2_300, ["x"], 300)
    task.open_bytes = 10
    task.tick(100)
    assert closed(task)[-1] == 2_400


def test_a_deterministic_source_commits_what_it_has_decided() -> None:
    """A decision is news before anything came of it (D2)."""
    task = Logical(Log(), SOURCE, limits=IDLE).start()
    task.tick(1_000)
    task.tick(100)
    assert closed(task)[-1] == 2_000
    task.take("x")
    task.tick(100)
    task.tick(100)
    assert closed(task)[-1] == 2_200
