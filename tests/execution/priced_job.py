"""A job that prices orders by a table from outside, which it reads first: no order may miss a price."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode


def table_of(name: str) -> Topic[str, int]:
    """Return the topic of a job's prices: item → price."""
    return Topic(f"{name}-prices", key=utf8, value=int64)


def orders_of(name: str) -> Topic[str, int]:
    """Return the topic of a job's orders: item → count."""
    return Topic(f"{name}-orders", key=utf8, value=int64)


def bills_of(name: str) -> Topic[str, int]:
    """Return the topic of a job's bills: item → what it costs, -1: there was no price."""
    return Topic(f"{name}-bills", key=utf8, value=int64)


def pricing(mode: Mode = "aligned", name: str = "priced", *, broadcast: bool = False) -> Job:
    """Return the job in a mode, with 2 partitions; ``broadcast``: each task has all prices."""
    table = table_of(name)

    class Bill(Task):
        """Keeps the prices, and bills the orders."""

        orders = Input(orders_of(name))
        prices = Input(table, bootstrap=True, broadcast=broadcast)
        known = Store("known", key=utf8, value=int64)
        out = Output(bills_of(name))

        def process(self, record: Record[str, int]) -> None:
            if record.topic == table.name:
                self.known.put(record.key, record.value)
                return
            price = self.known.get(record.key)
            self.out.send(record.key, -1 if price is None else price * record.value)

    return Job(name, [Bill], partitions=2, mode=mode)
