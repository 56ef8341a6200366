"""A job whose three stages have different numbers of tasks: one, as many as the job has, and more than that."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode

priced = Topic("priced", key=utf8, value=int64)
ordered = Topic("ordered", key=utf8, value=int64)


def prices_of(name: str) -> Topic[str, int]:
    """Return the topic of a job's prices, of one partition: item → price."""
    return Topic(f"{name}-prices", key=utf8, value=int64)


def orders_of(name: str) -> Topic[str, int]:
    """Return the topic of a job's orders, of two partitions: item → any number."""
    return Topic(f"{name}-orders", key=utf8, value=int64)


def bills_of(name: str) -> Topic[str, int]:
    """Return the topic of what the job makes, of three: item → number of its order, or its price below zero."""
    return Topic(f"{name}-bills", key=utf8, value=int64)


def billing(mode: Mode, name: str) -> Job:
    """Return the job in a mode. Each order and each price gives one output, the same in any order of the two."""

    class Price(Task):
        """Sends each price to the task of its item."""

        partitions = 1
        prices = Input(prices_of(name))
        out = Output(priced)

        def process(self, record: Record[str, int]) -> None:
            self.out.send(record.key, record.value)

    class Order(Task):
        """Sends each order to the task of its item."""

        orders = Input(orders_of(name))
        out = Output(ordered)

        def process(self, record: Record[str, int]) -> None:
            self.out.send(record.key, record.value)

    class Bill(Task):
        """Counts the orders of each item."""

        partitions = 3
        priced = Input(priced)
        ordered = Input(ordered)
        count = Store("count", key=utf8, value=int64)
        out = Output(bills_of(name))

        def process(self, record: Record[str, int]) -> None:
            if record.topic == "priced":
                self.out.send(record.key, -record.value)
                return
            self.count.put(record.key, count := self.count.get(record.key, 0) + 1)
            self.out.send(record.key, count)

    return Job(name, [Price, Order, Bill], partitions=2, mode=mode)
