"""Wall-clock timers in deterministic mode: time passes them without a record, and the log knows first (D2, E8)."""

from grete.core import actions as do
from grete.core import events as on
from grete.protocol.changelog import ChangelogType, decode_time_lease
from tests.core.deterministic.scenario import Logical, Writer
from tests.core.streams import A0, A1, ALONE, INNER, SOURCE, Log

SECOND_US = 1_000_000


def leases(task: Logical) -> list[int]:
    """Return the time leases that the task has logged."""
    values = [value for _, value in task.log.rows[task.task.changelog]]
    return [decode_time_lease(value).t for value in values if value[0] & 15 == ChangelogType.TIME_LEASE]


def alone() -> Logical:
    """Return a source that no task reads, running, behind a record that sets a timer in a second."""
    task = Logical(Log(), ALONE, sink=True).start()
    task.wall = task.log.now_ms * 1_000 + SECOND_US
    task.take("sets a timer")
    return task


def test_a_source_that_no_task_reads_leases_time_for_its_timer_alone() -> None:
    """It sleeps until the timer is due, then logs a lease and passes the time, and sleeps again."""
    task = alone()
    wall = task.wall
    assert leases(task) == []
    task.tick(999)
    assert (leases(task), task.uptos) == ([], [])
    assert 0 < task.core.due_in_ms(task.mono_ms) <= 1
    task.tick(1)
    task.tick(5)
    assert len(leases(task)) == 1
    assert leases(task)[0] >= task.uptos[-1] >= wall
    task.tick(600)
    assert len(leases(task)) == 1


def test_a_timer_does_not_fire_before_its_lease_is_valid() -> None:
    """A successor that does not know of the lease may give a record a lower time. No tick is of use meanwhile."""
    task = alone()
    task.hold = {do.AppendChangelog}
    task.tick(1_000)
    assert task.uptos == []
    assert task.core.due_in_ms(task.mono_ms) > 0
    task.release()
    task.tick(5)
    assert len(task.uptos) == 1


def test_a_successor_passes_the_time_that_was_leased() -> None:
    """The timer may have fired: it does so before any new record, whose time is higher."""
    task = alone()
    task.tick(1_000)
    task.tick(5)
    after = task.successor()
    after.start()
    assert after.uptos == [leases(task)[-1]]
    after.take("later")
    assert after.processed[-1][1] > leases(task)[-1]


def test_a_source_with_consumers_wakes_up_at_its_timer() -> None:
    """Not at the next progress message alone, which may be 50 ms later if others tell it what they wait for."""
    task = Logical(Log(), SOURCE).start()
    task.tick(5)
    task.step(on.Tick(task.mono_ms, 0, task.mono_ms * 1000, observed=task.log.now_ms * 1_000))
    task.wall = task.log.now_ms * 1_000 + 30_000
    wall = task.wall
    task.take("sets a timer")
    assert task.core.due_in_ms(task.mono_ms) == 30
    task.tick(30)
    assert task.uptos[-1] == wall


def test_a_task_passes_a_timer_when_its_channels_have() -> None:
    """Progress of all of them, and no sooner; then consumers learn of it."""
    log = Log()
    task, one, other = Logical(log, INNER).start(), Writer(log, A0), Writer(log, A1)
    task.wall = 150
    one.send(("a", 100, 0))
    other.progress(120)
    task.read()
    uptos = list(task.uptos)
    one.progress(200)
    task.read()
    assert task.uptos == uptos
    other.progress(160)
    task.read()
    assert task.uptos == [*uptos, 160]
    assert task.progress_messages(task.task.outputs[0])[-1] == 160
