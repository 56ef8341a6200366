"""The time between a commit and the next checkpoint, which decisions and releases need (D2, D5)."""

from framework.core import actions as do
from framework.core.limits import REST_MS_MAX
from tests.core.deterministic.scenario import Logical
from tests.core.streams import SOURCE, Log


def source() -> Logical:
    """Return SOURCE, running, with a time lease."""
    return Logical(Log(), SOURCE).start()


def test_slow_commits_leave_time_for_the_rest() -> None:
    """Decisions and releases wait for a commit: three quarters of the time at least are theirs (D4)."""
    task = source()
    task.hold = {do.WriteData}
    task.tick(100)
    task.mono_ms += 400
    task.log.now_ms += 400
    task.release()
    committed = task.core.frozen
    task.tick(1_100)
    assert task.core.frozen == committed
    assert task.core.due_in_ms(task.mono_ms) <= 100
    task.tick(100)
    assert task.core.frozen > committed


def test_a_commit_that_an_outage_held_up_is_followed_by_a_short_rest() -> None:
    """Half an hour without the log: else no checkpoint would be closed for one and a half hours behind it (B1)."""
    task = source()
    task.hold = {do.WriteData}
    task.tick(100)
    task.mono_ms += 1_800_000
    task.log.now_ms += 1_800_000
    task.release()
    committed = task.core.frozen
    task.tick(REST_MS_MAX - 1)
    assert task.core.frozen == committed
    task.tick(101)
    assert task.core.frozen > committed
