"""The filter: what passes, what is refused and why, and that neither is lost or repeated."""

import pytest

from grete import Topic, utf8
from grete.testing import Kit
from tasks.dead_letters import Payment, job, large, payments, refused

AS_TEXT = Topic("payments", key=utf8, value=utf8)  # to feed what the declared serde refuses


def test_large_payments_pass() -> None:
    """A payment of the least large amount passes, a smaller one does not."""
    kit = Kit(job)
    kit.feed(payments, "p1", Payment("ann", 100_000))
    kit.feed(payments, "p2", Payment("bob", 99_999))
    kit.run()
    assert kit.pairs(large) == [("p1", Payment("ann", 100_000))]
    assert kit.pairs(refused) == []


def test_a_refused_record_says_why() -> None:
    """Records for which the task raises, and undecodable ones, are set aside with the error; the job continues."""
    kit = Kit(job)
    kit.feed(payments, "p1", Payment("eve", -5))
    kit.feed(AS_TEXT, "p2", "not JSON")
    kit.feed(payments, "p3", Payment("ann", 250_000))
    kit.run()
    assert [key for key, _ in kit.pairs(large)] == ["p3"]
    first, second = kit.outputs(refused)
    assert "a payment of -5 cents" in (dict(first.headers)["grete.error"] or b"").decode()
    assert second.value == "not JSON"
    assert "cannot decode" in (dict(second.headers)["grete.error"] or b"").decode()


@pytest.mark.parametrize("seed", range(3))
def test_crashes_lose_and_repeat_nothing(seed: int) -> None:
    """Each payment is passed on or refused once."""
    kit = Kit(job)
    for number in range(20):
        kit.feed(payments, f"p{number}", Payment("ann", 200_000 * (-1) ** number))
    kit.run(crashes=3, seed=seed)
    assert [key for key, _ in kit.pairs(large)] == [f"p{number}" for number in range(0, 20, 2)]
    assert [key for key, _ in kit.pairs(refused)] == [f"p{number}" for number in range(1, 20, 2)]
