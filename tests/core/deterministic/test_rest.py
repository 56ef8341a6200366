"""The time between a commit and the next checkpoint, which decisions and releases need (D2, D5)."""

from dataclasses import replace

from grete.core import actions as do
from grete.core import events as on
from grete.core.limits import COMMIT_REST_MS_MAX
from tests.core.deterministic.scenario import Logical
from tests.core.scenario import LIMITS
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
    task.tick(COMMIT_REST_MS_MAX - 1)
    assert task.core.frozen == committed
    task.tick(101)
    assert task.core.frozen > committed


def test_a_checkpoint_that_the_code_requests_waits_for_the_rest_and_no_longer() -> None:
    """Its interval is not awaited; and it is closed once."""
    task = Logical(Log(), SOURCE, limits=replace(LIMITS, checkpoint_interval_ms=600_000)).start()

    def request() -> None:
        task.step(on.Tick(task.mono_ms, mono_us=1_000 * task.mono_ms, requested=True))

    task.hold = {do.WriteData}
    before = task.core.frozen
    request()
    committed = task.core.frozen
    assert committed > before
    task.mono_ms += 400
    task.log.now_ms += 400
    task.release()
    request()
    assert (task.core.frozen, task.core.due_in_ms(task.mono_ms) <= 1_200) == (committed, True)
    task.tick(1_199)
    assert task.core.frozen == committed
    task.tick(1)
    requested = task.core.frozen
    assert requested > committed
    task.release()
    task.tick(10_000)
    assert task.core.frozen == requested
