"""Enrichment: each order gets its price from a service, many requests at a time, in the order of the orders.

Order ids are the keys, and the values JSON such as ``{"sku": "tea", "count": 2}``. PRICES is the service's address.
"""

import os
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from grete import Call, DeadLetter, Input, Job, Output, Record, Store, Task, Topic, bytes_serde, int64, json, utf8

orders = Topic("orders", key=utf8, value=json)
refused = Topic("refused-orders", key=bytes_serde, value=bytes_serde)
priced = Topic("priced-orders", key=utf8, value=json)


def price_of(sku: str) -> int | None:
    """Return the price in cents, None: there is no such thing. Another error is tried again."""
    try:
        with urlopen(f"{os.environ['PRICES']}/{sku}", timeout=5) as answer:  # noqa: S310  # the operator's address
            return int(answer.read())
    except HTTPError as error:
        if error.status == 404:
            return None
        raise


class PriceOrders(Task):
    """Asks once for each thing, and remembers its price."""

    in_flight = 32  # orders that wait for the service at a time

    orders = Input(orders, errors=DeadLetter(refused))
    ask = Call(price_of, timeout_ms=10_000, attempts=4)
    prices = Store("prices", key=utf8, value=int64)
    out = Output(priced)

    async def process(self, record: Record[str, dict[str, Any]]) -> None:
        """Price one order."""
        sku = record.value["sku"]
        price = self.prices.get(sku)
        if price is None:
            price = await self.ask(sku)
            if price is None:
                raise ValueError(f"there is no {sku}")
            self.prices.put(sku, price)
        self.out.send(record.key, {**record.value, "cents": price * record.value["count"]})


job = Job("price-orders", stages=[PriceOrders])
