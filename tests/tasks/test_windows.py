"""The windows: when one closes, what is late, and that a crash changes no number."""

import pytest

from grete.testing import Kit
from tasks.windows import MINUTE_MS, job, per_minute, views

NOON = 1_700_000_040_000 // MINUTE_MS * MINUTE_MS


def test_a_page_has_one_number_for_each_minute() -> None:
    """A window closes when event time is past its end and its grace, and carries its last millisecond."""
    kit = Kit(job)
    for page, at in [("home", 0), ("home", 59_999), ("prices", 30_000), ("home", 60_000)]:
        kit.feed(views, page, "ann", timestamp=NOON + at)
    kit.run()
    assert kit.pairs(per_minute) == []
    kit.feed(views, "home", "ann", timestamp=NOON + 70_000)
    kit.run()
    assert kit.pairs(per_minute) == [("home", 2), ("prices", 1)]
    assert {record.timestamp for record in kit.outputs(per_minute)} == {NOON + MINUTE_MS - 1}


def test_a_record_may_come_within_the_grace() -> None:
    """Ten seconds out of order count; a record for a window that is closed does not."""
    kit = Kit(job)
    for at in (0, 69_999, 1, 70_000, 2, 130_000):
        kit.feed(views, "home", "ann", timestamp=NOON + at)
    kit.run()
    assert kit.pairs(per_minute) == [("home", 2), ("home", 2)]


@pytest.mark.parametrize("seed", range(3))
def test_crashes_change_no_number(seed: int) -> None:
    """Open windows and their timers are state: each view counts once, in its minute."""
    kit = Kit(job)
    for second in range(300):
        kit.feed(views, "home", "ann", timestamp=NOON + 1_000 * second)
    kit.run(crashes=3, seed=seed)
    assert kit.pairs(per_minute) == [("home", 60)] * 4
