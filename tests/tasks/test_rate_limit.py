"""The rate limit: a burst, a steady client, and that a crash gives no client a request more."""

import pytest

from grete.testing import Kit
from tasks.rate_limit import ALLOWED, MINUTE_MS, allowed, job, refused, requests

NOON = 1_700_000_040_000


def test_a_burst_is_cut_and_a_steady_client_is_not() -> None:
    """Five at once are allowed, the sixth is not; twelve seconds later there is one more."""
    kit = Kit(job)
    for number, second in enumerate((0, 0, 0, 0, 0, 0, 12, 12)):
        kit.feed(requests, "burst", f"{number}", timestamp=NOON + 1_000 * second)
    for number in range(30):
        kit.feed(requests, "steady", f"{number}", timestamp=NOON + MINUTE_MS // ALLOWED * number)
    kit.run()
    assert [value for key, value in kit.pairs(allowed) if key == "burst"] == ["0", "1", "2", "3", "4", "6"]
    assert [value for key, value in kit.pairs(refused) if key == "burst"] == ["5", "7"]
    assert [value for key, value in kit.pairs(allowed) if key == "steady"] == [f"{number}" for number in range(30)]


def test_what_comes_back_in_parts_is_whole() -> None:
    """In twelve seconds a request comes back, whatever comes between: the last one was refused when parts were kept."""
    kit, at = Kit(job), NOON
    for number, pause in enumerate((0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 12, 4)):
        at += 1_000 * pause
        kit.feed(requests, "ann", f"{number}", timestamp=at)
    kit.run()
    assert [value for _, value in kit.pairs(allowed)] == ["0", "1", "2", "3", "4", "10", "11"]


@pytest.mark.parametrize("seed", range(3))
def test_crashes_allow_nothing_more(seed: int) -> None:
    """The buckets go back with the outputs."""
    kit = Kit(job)
    for number in range(40):
        kit.feed(requests, "ann", f"{number}", timestamp=NOON)
    kit.run(crashes=3, seed=seed)
    assert (len(kit.pairs(allowed)), len(kit.pairs(refused))) == (ALLOWED, 40 - ALLOWED)
