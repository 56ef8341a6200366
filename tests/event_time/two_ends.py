"""A job whose input ends earlier in one partition than in the other: what that one still lets through is not late."""

from grete import Input, IntervalJoin, Job, Output, Pair, Record, Task, Topic, TumblingWindow, Window, int64, json, utf8

orders = Topic("orders", key=utf8, value=json(int))
paid = Topic("paid", key=utf8, value=json(int))
joined = Topic("joined", key=utf8, value=int64)
unpaid = Topic("unpaid", key=utf8, value=int64)


class Match(Task):
    """Sends the orders without a payment."""

    orders = Input(orders, time=int)
    paid = Input(paid, time=int)
    both = IntervalJoin("both", before_ms=0, after_ms=20, key=utf8, left=int64, right=int64, how="left")
    out = Output(joined)

    def process(self, record: Record[str, int]) -> None:
        """Keep either side."""
        put = self.both.put_left if record.topic == "orders" else self.both.put_right
        put(record.key, record.timestamp, record.value)

    def on_join(self, pair: Pair[str, int, int]) -> None:
        """Tell of an order alone."""
        if pair.right is None:
            self.out.send("all", 1)


class Count(Task):
    """Counts them in windows."""

    joined = Input(joined)
    windows = TumblingWindow("windows", 50, key=utf8, value=int64)
    out = Output(unpaid)

    def process(self, record: Record[str, int]) -> None:
        """Add one."""
        self.windows.update(record.key, record.timestamp, lambda so_far: (so_far or 0) + record.value)

    def on_window(self, window: Window[str, int]) -> None:
        """Send the count."""
        self.out.send(window.key, window.value)


job = Job("two-ends", stages=[Match, Count], partitions=2)
