"""A user's job with a test of it, right and with mistakes that a type checker sees: one on each line."""

RIGHT = """
from dataclasses import dataclass

from grete import Input, Job, Output, Record, Store, Task, Topic, TumblingWindow, Window, client, int64, json, utf8
from grete.testing import Kit

@dataclass
class Order:
    sku: str
    pieces: int

orders = Topic("orders", key=utf8, value=json(Order))
totals = Topic("totals", key=utf8, value=int64)

class Add(Task):
    orders = Input(orders)
    sums = Store("sums", key=utf8, value=int64)
    minutes = TumblingWindow("minutes", 60_000, key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, Order]) -> None:
        total = self.sums.get(record.key, 0) + record.value.pieces
        self.sums.put(record.key, total)
        self.minutes.update(record.key, record.timestamp, lambda so_far: (so_far or 0) + 1)
        self.out.send(record.key, total)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, window.value)

job = Job("typed", stages=[Add])
kit = Kit(job)
kit.feed(orders, "k", Order("s", 1))
pairs: list[tuple[str, int]] = kit.pairs(totals)
client(job)
"""
MISTAKES = (
    "self.sums.put(record.key, 'one')",
    "self.out.send(record.key, record.value)",
    "self.out.send(1, 1)",
    "self.sums.get(record.key) + 1",
    "text: str = record.value.pieces",
    "record.value.nothing",
    "self.ctx.nothing()",
    "kit.feed(orders, 'k', 1)",
    "from grete import nothing",
)
WRONG = RIGHT.replace("        self.out.send(record.key, total)\n", "".join(f"        {each}\n" for each in MISTAKES))
