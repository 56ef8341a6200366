"""An order workflow: placed, paid, shipped. Who has not paid after a day is reminded; what comes twice is told."""

from dataclasses import dataclass

from grete import ById, Input, Job, Key, Output, Record, Store, Task, Timer, Timers, Topic, int64, json, utf8

DAY_MS = 24 * 3_600_000
ORDER = Key(utf8, utf8)  # customer, order


@dataclass
class Step:
    id: str
    order: str
    what: str  # placed, paid, shipped


steps = Topic("steps", key=utf8, value=json(Step))  # by customer
told = Topic("told", key=ORDER, value=utf8)


class Follow(Task):
    steps = Input(steps, deduplicate=ById(lambda record: (record.key, record.value.id), 7 * DAY_MS, key=ORDER))
    orders = Store("orders", key=ORDER, value=utf8)
    open = Store("open", key=utf8, value=int64)  # of a customer
    patience = Timers(key=ORDER)
    out = Output(told)

    def process(self, record: Record[str, Step]) -> None:
        order, what = (record.key, record.value.order), record.value.what
        if self.orders.get(order) == what:
            self.out.send(order, f"{what} twice")
            return
        self.orders.put(order, what)
        if what == "placed":
            self.patience.schedule(record.timestamp + DAY_MS, order)
            self.open.put(record.key, self.open.get(record.key, 0) + 1)
        elif what == "shipped":
            self.open.put(record.key, self.open.get(record.key, 0) - 1)
            self.out.send(order, "shipped")

    def on_timer(self, timer: Timer[tuple[str, str]]) -> None:
        if self.orders.get(timer.key) == "placed":
            self.out.send(timer.key, "reminded")


job = Job("orders", stages=[Follow], partitions=2)
