"""The ranking: over both partitions, minute by minute, and across crashes."""

import pytest

from grete.testing import Kit
from tasks.top_pages import MINUTE_MS, job, rankings, views

NOON = 1_700_000_040_000 // MINUTE_MS * MINUTE_MS
VIEWS = {"home": 9, "prices": 7, "about": 5, "jobs": 3, "imprint": 1}


@pytest.mark.parametrize("seed", range(3))
def test_each_minute_has_one_ranking(seed: int) -> None:
    """The first minute ranks pages by their views; in the second one the order is turned round."""
    kit = Kit(job)
    for page, times in VIEWS.items():
        for number in range(times):
            kit.feed(views, page, "ann", timestamp=NOON + 1_000 * number)
        for number in range(10 - times):
            kit.feed(views, page, "bob", timestamp=NOON + MINUTE_MS + 1_000 * number)
    for page in VIEWS:  # event time goes on in each partition
        kit.feed(views, page, "eve", timestamp=NOON + 5 * MINUTE_MS)
    kit.run(crashes=2, seed=seed)
    assert kit.pairs(rankings) == [("all", ["home", "prices", "about"]), ("all", ["imprint", "jobs", "about"])]
