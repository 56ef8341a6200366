"""The alerts: three in a row, and the same alert again after a crash."""

import pytest

from grete.testing import Kit
from tasks.deterministic import Alert, ByUser, Login, Watch, alerts, job, logins

KINDS = [("ann", False), ("bob", False), ("ann", False), ("ann", False), ("bob", True), ("bob", False), ("bob", False)]


def fed() -> Kit:
    """Return a job with the attempts, in one partition so that their order is given."""
    kit = Kit(job)
    for user, ok in KINDS:
        kit.feed(logins, "session", Login(user, ok))
    return kit


def test_three_failures_in_a_row_raise_one_alert() -> None:
    """A login that goes well begins the count again."""
    kit = fed()
    kit.run()
    assert [user for user, _ in kit.pairs(alerts)] == ["ann"]
    assert kit.state(Watch.failures) == {"ann": 3, "bob": 2}


def test_an_alert_leaves_before_the_commit_and_stays_the_same() -> None:
    """The alert is visible before its task commits. Crashed and processed again, it is neither repeated nor changed."""
    kit = fed()
    while not kit.pairs(alerts):
        kit.advance(1)
    before: list[tuple[str, Alert]] = kit.pairs(alerts)
    assert kit.state(Watch.failures) == {}
    kit.crash_all()
    kit.run()
    assert kit.pairs(alerts) == before
    assert kit.state(Watch.failures) == {"ann": 3, "bob": 2}


@pytest.mark.parametrize("stage", [ByUser, Watch])
@pytest.mark.parametrize("seed", range(3))
def test_crashes_raise_no_second_alert(stage: type[ByUser] | type[Watch], seed: int) -> None:
    """There is one alert for ann after any crash."""
    kit = fed()
    kit.process()
    kit.crash(stage, other_host=bool(seed % 2))
    kit.run(crashes=2, seed=seed)
    assert [user for user, _ in kit.pairs(alerts)] == ["ann"]
