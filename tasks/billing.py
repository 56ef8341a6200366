"""Bills each order with the price that held at its time: a table that changes, kept with its history."""

import msgspec

from grete import Input, Job, Output, Record, Task, Topic, VersionedStore, int64, json, utf8

WEEK_MS = 7 * 24 * 3_600_000


class Order(msgspec.Struct, frozen=True):
    """A number of pieces of the record's key, an item."""

    number: int
    pieces: int


orders = Topic("orders", key=utf8, value=json(Order))  # item → order
prices = Topic("prices", key=utf8, value=json(int))  # item → cents; no value (None): it is not sold from then on
bills = Topic("bills", key=utf8, value=json(dict[str, int]))  # item → number of the order, and cents


class Bill(Task):
    """Reads the prices that are there before any order. So an order of last night finds the price of last night."""

    orders = Input(orders)
    prices = Input(prices, bootstrap=True)
    known = VersionedStore("known", key=utf8, value=int64, retention_ms=WEEK_MS)
    out = Output(bills)

    def process(self, record: Record[str, Order | int | None]) -> None:
        value = record.value
        if not isinstance(value, Order):
            self.known.put(record.key, record.timestamp, value)
            return
        price = self.known.get(record.key, record.timestamp)
        if price is not None:
            self.out.send(record.key, {"number": value.number, "cents": price * value.pieces})


job = Job("billing", stages=[Bill])
