"""The join of locations and forecasts: early, late, absent, and across crashes."""

import pytest

from framework.testing import Kit
from tests.support.recommendations import (
    WAIT_MS,
    Forecast,
    Recommend,
    forecasts,
    job,
    locations,
    recommendations,
)

NOON = 1_700_000_000_000


def test_a_visit_is_joined_with_the_forecast_of_its_place() -> None:
    """The table answers with the newest forecast at the time of the visit."""
    kit = Kit(job)
    kit.feed(forecasts, "beach", Forecast("sunny", NOON))
    kit.feed(forecasts, "hill", Forecast("tornadoes", NOON))
    kit.run()
    kit.feed(locations, "ann", "beach")
    kit.run()
    kit.feed(locations, "ann", "hill")
    kit.run()
    assert [text for _, text in kit.pairs(recommendations)] == [
        "beach: great weather for outdoors",
        "hill: tornadoes, better stay inside",
    ]


def test_a_late_forecast_is_no_news() -> None:
    """A forecast issued before the one in the table does not replace it."""
    kit = Kit(job)
    kit.feed(forecasts, "beach", Forecast("rain", NOON))
    kit.feed(forecasts, "beach", Forecast("sunny", NOON - 1))
    kit.run()
    assert kit.state(Recommend.table) == {"beach": Forecast("rain", NOON)}


def test_a_visit_waits_for_its_forecast() -> None:
    """Everyone at the place is answered when the first forecast comes, once."""
    kit = Kit(job)
    for user in ("ann", "bob"):
        kit.feed(locations, user, "beach")
    kit.feed(locations, "cid", "beachfront")
    kit.run()
    assert kit.pairs(recommendations) == []
    for weather in ("sunny", "rain"):
        kit.feed(forecasts, "beach", Forecast(weather, NOON))
        kit.run()
    text = "beach: great weather for outdoors"
    assert sorted(kit.pairs(recommendations)) == [("ann", text), ("bob", text)]
    assert len(kit.state(Recommend.waiting)) == 1


def test_a_visit_does_not_wait_forever() -> None:
    """After an hour of event time the answer is that there is none; a visit renewed meanwhile waits on."""
    kit = Kit(job, partitions=1)
    kit.feed(locations, "ann", "beach", timestamp=NOON)
    kit.feed(locations, "bob", "beach", timestamp=NOON)
    kit.feed(locations, "bob", "beach", timestamp=NOON + 1000)
    kit.run()
    kit.feed(locations, "eve", "moon", timestamp=NOON + WAIT_MS)
    kit.run()
    assert kit.outputs(recommendations)[0].timestamp == NOON + WAIT_MS
    assert kit.pairs(recommendations) == [("ann", "beach: no forecast")]
    kit.feed(locations, "eve", "moon", timestamp=NOON + WAIT_MS + 1000)
    kit.run()
    assert kit.pairs(recommendations)[1:] == [("bob", "beach: no forecast")]


@pytest.mark.parametrize("other_host", [False, True])
def test_table_and_timers_survive_a_crash(other_host: bool) -> None:
    """A job that dies as a whole goes on with its forecasts, its waiting visits and their timers (R1)."""
    kit = Kit(job, partitions=1)
    kit.feed(forecasts, "hill", Forecast("cloudy", NOON))
    kit.feed(locations, "ann", "beach", timestamp=NOON)
    kit.run()
    kit.crash_all(other_host=other_host)
    kit.feed(locations, "bob", "hill", timestamp=NOON + WAIT_MS)
    kit.run()
    assert sorted(kit.pairs(recommendations)) == [
        ("ann", "beach: no forecast"),
        ("bob", "hill: great weather for outdoors"),
    ]


def test_a_rollback_takes_the_answer_back() -> None:
    """What was recommended for a rolled-back visit is never seen; the visit comes again and is answered once (R4)."""
    kit = Kit(job, partitions=1)
    kit.feed(forecasts, "hill", Forecast("cloudy", NOON))
    kit.run()
    kit.feed(locations, "ann", "hill")
    kit.rollback(Recommend)
    assert kit.pairs(recommendations) == []
    kit.run()
    assert kit.pairs(recommendations) == [("ann", "hill: great weather for outdoors")]


@pytest.mark.parametrize("seed", range(5))
def test_crashes_at_any_moment_change_no_answer(seed: int) -> None:
    """Each visit is answered exactly once, by a forecast that was in the table."""
    kit = Kit(job)
    for step in range(3):
        kit.feed(forecasts, "beach", Forecast("sunny", NOON + step))
        for user in ("ann", "bob", "cid", "dan"):
            kit.feed(locations, user, "beach")
        kit.run(crashes=3, seed=10 * seed + step)
    answers = [user for user, _ in kit.pairs(recommendations)]
    assert sorted(answers) == sorted(["ann", "bob", "cid", "dan"] * 3)
