"""The visits: what is one, what is told early, what is late, and that a crash changes none."""

import pytest

from grete.testing import Kit
from tasks.visits import MINUTE_MS, Visit, clicks, job, late_clicks, visits

NOON = 1_699_999_200_000


def feed(kit: Kit, *clicked: tuple[int, str, str]) -> None:
    """Feed clicks: minute, visitor, page."""
    for minute, visitor, page in clicked:
        kit.feed(clicks, visitor, page, timestamp=NOON + minute * MINUTE_MS)


@pytest.mark.parametrize("seed", range(3))
def test_a_visit_ends_with_a_pause_of_half_an_hour(seed: int) -> None:
    """Each visit is told once when it is over, whatever crashes; what it was so far comes before."""
    kit = Kit(job)
    feed(kit, (0, "ann", "home"), (12, "ann", "shop"), (12, "bob", "home"), (42, "bob", "help"), (43, "ann", "home"))
    feed(kit, (200, "eve", "home"))
    kit.run(crashes=3, seed=seed)
    told = kit.pairs(visits)
    assert [pair for pair in told if pair[1].over] == [
        ("ann", Visit(["home", "shop"], 720, True)),
        ("bob", Visit(["home", "help"], 1800, True)),
        ("ann", Visit(["home"], 0, True)),
    ]
    assert told[0] == ("ann", Visit(["home", "shop"], 720, False))


def test_a_late_click_goes_to_a_topic_of_its_own() -> None:
    """A visit that is over takes no more clicks; one within the minute of grace still counts."""
    kit = Kit(job)
    feed(kit, (0, "ann", "home"), (30, "bob", "home"), (0, "ann", "shop"), (90, "bob", "home"), (1, "ann", "help"))
    kit.run()
    assert kit.pairs(late_clicks) == [("ann", "help")]
    assert ("ann", Visit(["home", "shop"], 0, True)) in kit.pairs(visits)
