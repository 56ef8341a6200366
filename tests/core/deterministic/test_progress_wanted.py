"""A deterministic source that is told which time tasks beside it have observed announces it at once (D1)."""

from grete.core import actions as do
from grete.core import events as on
from grete.protocol.changelog import ChangelogType, decode_time_lease
from tests.core.deterministic.scenario import Logical
from tests.core.streams import SOURCE, Log

TO = SOURCE.outputs


def source() -> Logical:
    """Return SOURCE, running, at log time 1,050 ms, with a lease."""
    return Logical(Log(), SOURCE).start()


def observes(task: Logical, t: int) -> list[int]:
    """Tell the source that a task beside it has observed ``t``; return the progress messages that follow at once."""
    before = len(task.progress_messages(TO[0]))
    task.step(on.Tick(task.mono_ms, 0, task.mono_ms * 1000, observed=t))
    return task.progress_messages(TO[0])[before:]


def test_a_source_that_learns_of_a_time_passes_it_at_once() -> None:
    """It announces what is waited for and no more, so that sources that observe each other come to rest (D1)."""
    task = source()
    task.tick(5)
    now = task.log.now_ms * 1000 + 50_000  # a source that has been idle has announced a little ahead
    assert observes(task, now + 700) == [now + 700]
    assert observes(task, now + 700) == []
    assert observes(task, now - 1) == []
    task.take("x")
    assert task.processed[-1][1] == now + 701
    before = len(task.progress_messages(TO[0]))
    for _ in range(100):
        task.tick(1)
    assert len(task.progress_messages(TO[0])) - before == 1  # and meanwhile it need not look at the clock so often


def test_what_is_observed_is_announced_within_the_lease_only() -> None:
    """An observed time beyond the lease is not announced: a successor may still produce such times (D2)."""
    task = source()
    [lease] = [
        decode_time_lease(v).t for _, v in task.log.rows[SOURCE.changelog] if v[0] & 15 == ChangelogType.TIME_LEASE
    ]
    assert observes(task, lease + 1_000) == [lease]
    assert task.core.due_in_ms(task.mono_ms) > 0
    task.tick(150)
    task.tick(5)
    assert task.progress_messages(TO[0])[-1] == lease + 1_000


def test_what_is_observed_waits_for_a_batch() -> None:
    """While a batch waits for its input decision, no progress message passes it, even if a task waits for one (D1)."""
    task = source()
    task.tick(5)
    task.hold = {do.AppendChangelog}
    task.take("x")
    wanted = task.processed[-1][1] + 1_000
    assert observes(task, wanted) == []
    task.release()
    task.tick(0)
    assert task.progress_messages(TO[0])[-1] == wanted
