"""The job of ``keys.tar.xz``: its keys and dicts are equal, and version 1 of the serdes writes them in several ways."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from grete import Input, Job, Output, Record, Store, Task, Topic, TumblingWindow, Window, int64, json, utf8

LONG_MS = 1 << 40  # 34 years: nothing closes but at the end


@dataclass
class Sale:
    price: Decimal
    at: datetime
    pieces: float


sales = Topic("sales", key=utf8, value=json(Sale))
by_price = Topic("by-price", key=json(Decimal), value=json(Sale))
totals = Topic("totals", key=json(Decimal), value=json(dict[int, int]))


class Spread(Task):
    """Sends each sale on by its price."""

    sales = Input(sales)
    out = Output(by_price)

    def process(self, record: Record[str, Sale]) -> None:
        self.out.send(record.value.price, record.value)


class Count(Task):
    """Counts by all of them, and keeps by price which hours had a sale, the later first."""

    by_price = Input(by_price)
    moments = Store("moments", key=json(datetime), value=int64)
    pieces = Store("pieces", key=json(float), value=int64)
    hours = Store("hours", key=json(Decimal), value=json(dict[int, int]))
    windows = TumblingWindow("windows", LONG_MS, key=json(Decimal), value=int64)
    out = Output(totals)

    def process(self, record: Record[Decimal, Sale]) -> None:
        sale = record.value
        self.moments.put(sale.at, self.moments.get(sale.at, 0) + 1)
        self.pieces.put(sale.pieces, self.pieces.get(sale.pieces, 0) + 1)
        before = self.hours.get(sale.price, {})
        hours = {sale.at.hour: before.get(sale.at.hour, 0) + 1, 0: 1}
        self.hours.put(sale.price, hours)
        self.windows.update(sale.price, record.timestamp, lambda n: (n or 0) + 1)
        self.out.send(sale.price, hours)

    def on_window(self, window: Window[Decimal, int]) -> None:
        """Nothing closes."""


job = Job("keys", stages=[Spread, Count], partitions=2)
