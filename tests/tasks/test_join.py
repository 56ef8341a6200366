"""The join of orders and customers: early, late, and across crashes."""

import pytest

from grete.testing import Kit
from tasks.join import ByCustomer, Order, Ship, customers, job, orders, shipments


def test_an_order_goes_out_with_the_city_of_its_customer() -> None:
    """The table answers with the city at the time of the order."""
    kit = Kit(job)
    for city, number in [("Vienna", "1"), ("Graz", "2")]:
        kit.feed(customers, "ann", city)
        kit.run()
        kit.feed(orders, number, Order("ann", f"item {number}"))
        kit.run()
    assert sorted(kit.pairs(shipments)) == [("Graz", "item 2"), ("Vienna", "item 1")]


def test_an_order_waits_for_its_customer() -> None:
    """Orders that come first go out when the customer comes, in their order; a customer who is gone has no city."""
    kit = Kit(job)
    for item in ("tea", "salt"):
        kit.feed(orders, item, Order("ann", item), partition=0)
    kit.run()
    assert kit.state(Ship.waiting) == {"ann": ["tea", "salt"]}
    kit.feed(customers, "ann", "Vienna")
    kit.run()
    assert kit.pairs(shipments) == [("Vienna", "tea"), ("Vienna", "salt")]
    kit.feed(customers, "ann", None)
    kit.run()
    kit.feed(orders, "3", Order("ann", "oil"))
    kit.run()
    assert kit.state(Ship.waiting) == {"ann": ["oil"]}
    assert kit.state(Ship.cities) == {}


def test_a_rollback_repeats_no_shipment() -> None:
    """An order whose sender dies before its commit is shipped once (R4)."""
    kit = Kit(job, partitions=1)
    kit.feed(customers, "ann", "Vienna")
    kit.run()
    kit.feed(orders, "1", Order("ann", "tea"))
    kit.process()
    kit.crash(ByCustomer)
    kit.run()
    assert kit.pairs(shipments) == [("Vienna", "tea")]


@pytest.mark.parametrize("seed", range(3))
def test_each_order_is_shipped_once(seed: int) -> None:
    """Each order is shipped once after any crash, with or without the disk, whichever of the two comes first."""
    kit = Kit(job)
    for number in range(12):
        kit.feed(orders, f"{number}", Order(f"c{number % 4}", f"item {number}"))
    kit.run(crashes=2, seed=seed)
    for number in range(4):
        kit.feed(customers, f"c{number}", f"city {number}")
    kit.run(crashes=2, seed=seed)
    assert sorted(kit.pairs(shipments)) == sorted((f"city {n % 4}", f"item {n}") for n in range(12))
