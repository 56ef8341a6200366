"""The store whose entries expire: what is told again, what is late, and that a crash changes nothing."""

import pytest

from grete.testing import Kit
from tasks.once_a_day import DAY_MS, TellOnce, alarms, job, notices

NOON = 1_700_000_000_000 // DAY_MS * DAY_MS


def test_an_alarm_is_told_again_when_event_time_is_a_day_further() -> None:
    """Each record meets the event time that the ones before it have reached."""
    kit = Kit(job)
    for machine, what, at in [
        ("press", "hot", 0),
        ("press", "hot", DAY_MS - 1),
        ("press", "oil", DAY_MS),
        ("press", "hot", DAY_MS),
        ("saw", "hot", DAY_MS + 1),
        ("press", "hot", DAY_MS + 2),
    ]:
        kit.feed(alarms, machine, what, timestamp=NOON + at)
    kit.run()
    assert kit.pairs(notices) == [("press", "hot"), ("press", "oil"), ("press", "hot"), ("saw", "hot")]
    assert kit.state(TellOnce.told) == {
        "press/hot": NOON + DAY_MS,
        "press/oil": NOON + DAY_MS,
        "saw/hot": NOON + DAY_MS + 1,
    }


@pytest.mark.parametrize("seed", range(3))
def test_crashes_change_no_notice(seed: int) -> None:
    """An alarm every hour for four days: it is told four times, and once more is remembered."""
    kit = Kit(job)
    for hour in range(4 * 24):
        kit.feed(alarms, "press", "hot", timestamp=NOON + hour * 3_600_000)
    kit.run(crashes=4, seed=seed)
    hours = [(record.timestamp - NOON) // 3_600_000 for record in kit.outputs(notices)]
    assert hours == [0, 25, 50, 75]
    kit.crash_all(other_host=True)
    kit.run()
    assert kit.state(TellOnce.told) == {"press/hot": NOON + 75 * 3_600_000}
