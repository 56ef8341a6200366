"""The join of two streams: what matches, what is told without a match, and that a crash changes neither."""

import pytest

from grete.testing import Kit
from tasks.interval_join import Match, job, orders, payments, results

MINUTE_MS = 60_000


def test_an_order_finds_its_payments_of_ten_minutes() -> None:
    """The bounds count; a payment may be read before its order, and one that is too late finds none."""
    kit = Kit(job)
    for topic, minute, number, text in [
        (payments, 10, "1", "ann"),
        (orders, 0, "1", "tea"),
        (orders, 5, "2", "salt"),
        (payments, 16, "2", "bob"),
        (payments, 20, "3", "cid"),
        (orders, 30, "end", ""),
        (payments, 30, "end", "dan"),
    ]:
        kit.feed(topic, number, text, timestamp=minute * MINUTE_MS)
    kit.run()
    told = [(record.key, record.value, record.timestamp // MINUTE_MS) for record in kit.outputs(results)]
    assert sorted(told) == [("1", "tea: paid by ann", 10), ("2", "salt: not paid", 5), ("end", ": paid by dan", 30)]


@pytest.mark.parametrize("seed", range(3))
def test_neither_crashes_nor_disorder_change_a_result(seed: int) -> None:
    """Half of the orders are paid after nine minutes, once each; the others are told once. Both come out of order."""
    kit = Kit(job, partitions=2)
    ordered = [(str(minute), "tea", minute * MINUTE_MS) for minute in range(100)]
    paid = [(number, "ann", at + 9 * MINUTE_MS) for number, _, at in ordered[1::2]]
    kit.feed_all(orders, ordered, disorder_ms=MINUTE_MS, seed=seed)
    kit.feed_all(payments, paid, disorder_ms=MINUTE_MS, seed=seed)
    kit.run(crashes=4, seed=seed)
    kit.drain()
    expected = [(str(minute), f"tea: {'paid by ann' if minute % 2 else 'not paid'}") for minute in range(100)]
    assert sorted(kit.pairs(results)) == sorted(expected)
    assert kit.state(Match.paid.lefts) == {}
