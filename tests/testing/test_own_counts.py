"""Stages with a number of partitions of their own, in the kit, with crashes."""

from typing import Any

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError, GraphError, TaskError
from grete.protocol.partitioner import partition_of
from grete.testing import Kit

ITEMS = 30
HOUR_MS = 3_600_000
orders = Topic("orders", key=utf8, value=int64)  # item → how many
prices = Topic("prices", key=utf8, value=int64)  # item → price
priced = Topic("priced", key=utf8, value=int64)
ordered = Topic("ordered", key=utf8, value=int64)
bills = Topic("bills", key=utf8, value=int64)  # item → price, or how many of it
sums = Topic("sums", key=utf8, value=int64)  # item → what was billed so far


class Price(Task):
    """Reads a topic of one partition, and sends each price to the task of its item."""

    partitions = 1
    prices = Input(prices)
    out = Output(priced)

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value)


class Order(Task):
    """Reads as many partitions as the job has."""

    orders = Input(orders)
    out = Output(ordered)

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value)


class Bill(Task):
    """Joins both, with more tasks than either."""

    partitions = 5
    priced = Input(priced)
    ordered = Input(ordered)
    price = Store("price", key=utf8, value=int64)
    count = Store("count", key=utf8, value=int64)
    out = Output(bills)

    def process(self, record: Record[str, int]) -> None:
        if record.topic == "priced":
            self.price.put(record.key, record.value)
        else:
            self.count.put(record.key, self.count.get(record.key, 0) + record.value)
        price, count = self.price.get(record.key), self.count.get(record.key)
        if price is not None and count is not None:
            self.out.send(record.key, price * count)


class Sum(Task):
    """Keeps the last bill of each item, with fewer tasks again."""

    partitions = 2
    bills = Input(bills)
    last = Store("last", key=utf8, value=int64)
    out = Output(sums)

    def process(self, record: Record[str, int]) -> None:
        self.last.put(record.key, record.value)
        self.out.send(record.key, record.value)


STAGES = [Price, Order, Bill, Sum]
EXPECTED = {f"item {number}": 3 * number for number in range(ITEMS)}


def fed(kit: Kit) -> Kit:
    """Feed a price of each item, and three orders of one."""
    for number in range(ITEMS):
        for _ in range(3):
            kit.feed(orders, f"item {number}", 1)
        kit.feed(prices, f"item {number}", number)
    return kit


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_stages_with_numbers_of_their_own_give_what_equal_ones_give(mode: Mode, seed: int) -> None:
    """Each record comes to the task of its key at each stage, once, through crashes (A6)."""
    kit = fed(Kit(Job("billing", STAGES, partitions=3, mode=mode)))
    kit.run(crashes=15, seed=seed)
    assert kit.state(Sum.last) == EXPECTED
    assert dict(kit.pairs(sums)) == EXPECTED
    of_tasks = [kit.state(Bill.price, partition) for partition in range(5)]
    assert [{partition_of(item.encode(), 5) for item in found} - {at} for at, found in enumerate(of_tasks)] == [
        set()
    ] * 5
    assert all(of_tasks)
    assert not any(kit.state(Sum.last, 0).keys() & kit.state(Sum.last, 1).keys())


def test_at_least_once_stages_have_numbers_of_their_own() -> None:
    """The number of tasks of a stage does not depend on the guarantee."""
    kit = fed(Kit(Job("billing", STAGES, partitions=3), processing_guarantee="at-least-once"))
    kit.run()
    assert kit.state(Sum.last) == EXPECTED


def test_the_topics_have_the_numbers_of_their_readers() -> None:
    """A stream has a partition for each task that reads it, a changelog one for each task of its stage."""
    job = Job("billing", STAGES, partitions=3)
    kit = Kit(job)
    topology = job.topology()
    assert {stage.name: stage.partitions for stage in topology.stages} == {"price": 1, "order": 3, "bill": 5, "sum": 2}
    assert {stream.topic: stream.partitions for stream in topology.streams} == {
        "billing.price.priced.bill": 5,
        "billing.order.ordered.bill": 5,
        "billing.bill.bills.sum": 2,
    }
    assert (job.workers, [job.count_of(topic) for topic in ("prices", "orders", "sums")]) == (5, [1, 3, 2])
    with pytest.raises(ConfigError, match="stage 'sum' has partitions 0 to 1, not 2"):
        kit.crash(Sum, 2)


class Half(Task):
    """Reads what Third reads, with another number of tasks."""

    partitions = 2
    bills = Input(ordered)
    seen = Store("seen", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.seen.put(record.key, record.partition)


class Third(Half):
    """Reads what Half reads, with another number of tasks."""

    partitions = 3


class Whole(Half):
    """Reads all of it in each task."""

    partitions = 4
    bills = Input(ordered, broadcast=True)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_one_topic_goes_to_stages_with_different_numbers_of_tasks(mode: Mode) -> None:
    """Each key is where it would be if its stage were the only reader."""
    kit = Kit(Job("readers", [Order, Half, Third, Whole], partitions=1, mode=mode))
    items = [f"item {number}" for number in range(ITEMS)]
    for item in items:
        kit.feed(orders, item, 1)
    kit.run(crashes=8, seed=1)
    for stage, count in ((Half, 2), (Third, 3)):
        assert kit.state("seen", stage=stage) == {item: partition_of(item.encode(), count) for item in items}
    assert [set(kit.state("seen", number, stage=Whole)) for number in range(4)] == [set(items)] * 4


class Named(Order):
    """Sends to a partition that it names, and without a key to each in turn."""

    name = "named"

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value, partition=record.value)


def test_a_partition_that_is_named_is_one_that_each_reader_has() -> None:
    """Of 2 and 3 partitions a sender may name 0 and 1: partition 2 is not in both."""
    kit = Kit(Job("named", [Named, Half, Third]))
    kit.feed(orders, "a", 1)
    kit.run()
    assert kit.state("seen", stage=Half) == kit.state("seen", stage=Third) == {"a": 1}
    kit.feed(orders, "a", 2)
    with pytest.raises(TaskError, match="output to ordered: partition 2: there are 2"):
        kit.run()


@pytest.mark.parametrize("count", [0, -1, 1_001, True, 2.0, "3"])
def test_a_number_that_no_stage_can_have_is_refused(count: Any) -> None:
    """The attribute is a number of tasks, and nothing else."""
    with pytest.raises(GraphError, match=r"stage 'order': partitions = .*: need 1 to 1000"):
        Job("j", [type("Order", (Order,), {"partitions": count})])


def test_a_topic_from_outside_has_one_number() -> None:
    """Two stages that read it by partition have as many tasks; one that reads all of it may have another number."""
    other = type("Other", (Half,), {"bills": Input(orders)})
    with pytest.raises(GraphError) as error:
        Job("j", [Order, other], partitions=3)
    text = str(error.value)
    assert "stage 'order' has 3 partitions and stage 'other' has 2, and both read topic 'orders' from outside" in text
    assert "read all of it in each task: Input(…, broadcast=True)" in text
    whole = type("Other", (Half,), {"bills": Input(orders, broadcast=True)})
    job = Job("j", [whole, Order], partitions=3)
    assert job.count_of("orders") == 3
    kit = Kit(job)
    kit.feed(orders, "a", 1)
    kit.run()
    at = partition_of(b"a", 3)
    assert [kit.state("seen", number, stage=whole) for number in range(2)] == [{"a": at}] * 2


def test_the_kits_number_is_that_of_stages_without_their_own() -> None:
    """As is the one of Job.of; one stage alone may get another one."""
    kit = Kit(Job("billing", STAGES, partitions=3), partitions=4)
    assert [stage.partitions for stage in kit.job.stages] == [1, 4, 5, 2]
    assert [stage.partitions for stage in kit.job.of(7, "bill").stages] == [1, 4, 7, 2]
