"""Joins two streams: each order with its payments within ten minutes; it tells of an order without one, too."""

from grete import Input, IntervalJoin, Job, Output, Pair, Record, Task, Topic, utf8

orders = Topic("orders", key=utf8, value=utf8)  # number of the order → item
payments = Topic("payments", key=utf8, value=utf8)  # number of the order → who pays
results = Topic("paid-orders", key=utf8, value=utf8)  # number of the order → what became of it


class Match(Task):
    """Keeps orders and payments until no other can match them. Records may be one minute out of order."""

    orders = Input(orders)
    payments = Input(payments)
    paid = IntervalJoin(
        "paid", before_ms=0, after_ms=600_000, key=utf8, left=utf8, right=utf8, how="left", grace_ms=60_000
    )
    out = Output(results)

    def process(self, record: Record[str, str]) -> None:
        put = self.paid.put_left if record.topic == "orders" else self.paid.put_right
        put(record.key, record.timestamp, record.value)

    def on_join(self, pair: Pair[str, str, str]) -> None:
        self.out.send(pair.key, f"{pair.left}: {'not paid' if pair.right is None else 'paid by ' + pair.right}")


job = Job("payments", stages=[Match])
