"""The table that changes: each order has the price of its time, also if newer ones were read before."""

import pytest

from grete.testing import Kit
from tasks.billing import Order, bills, job, orders, prices

HOUR_MS = 3_600_000


def test_an_order_has_the_price_of_its_time() -> None:
    """Before the first price and after the last there is no bill; the price of an hour holds from its first ms on."""
    kit = Kit(job)
    for hour, price in [(2, 7), (1, 5), (4, None)]:
        kit.feed(prices, "tea", price, timestamp=hour * HOUR_MS)
    for number, at in enumerate([HOUR_MS - 1, HOUR_MS, 2 * HOUR_MS - 1, 2 * HOUR_MS, 4 * HOUR_MS]):
        kit.feed(orders, "tea", Order(number, 10), timestamp=at)
    kit.run()
    assert [(bill["number"], bill["cents"]) for _, bill in kit.pairs(bills)] == [(1, 50), (2, 50), (3, 70)]


@pytest.mark.parametrize("seed", range(3))
def test_crashes_change_no_bill(seed: int) -> None:
    """A new price every hour, and an order of each half hour: twice the same price, each once."""
    kit = Kit(job)
    for hour in range(24):
        kit.feed(prices, "tea", hour, timestamp=hour * HOUR_MS)
        for half in range(2):
            kit.feed(orders, "tea", Order(2 * hour + half, 1), timestamp=hour * HOUR_MS + half * HOUR_MS // 2)
    kit.run(crashes=4, seed=seed)
    assert [bill["cents"] for _, bill in kit.pairs(bills)] == [number // 2 for number in range(48)]
