"""Topics from outside with more partitions than tasks (A2f): each task reads several; in the kit, with crashes."""

from collections import Counter
from typing import Any

import pytest

from grete import ById, Input, Job, Output, Record, Store, Task, Topic, TumblingWindow, Window, int64, utf8
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError, GraphError
from grete.protocol.partitioner import partition_of
from grete.testing import Kit

ITEMS = 30
orders = Topic("orders", key=utf8, value=int64, partitions=8)  # item → how many
prices = Topic("prices", key=utf8, value=int64, partitions=4)  # item → price
ordered = Topic("ordered", key=utf8, value=int64)
bills = Topic("bills", key=utf8, value=int64)  # item → what was billed so far


class Order(Task):
    """Counts the orders of an item, and sends them on."""

    orders = Input(orders)
    seen = Store("seen", key=utf8, value=int64)
    out = Output(ordered)

    def process(self, record: Record[str, int]) -> None:
        self.seen.put(record.key, self.seen.get(record.key, 0) + record.value)
        self.out.send(record.key, record.value)


class Bill(Task):
    """Joins a stream with a table from outside, which has another number of partitions than the orders."""

    ordered = Input(ordered)
    prices = Input(prices, bootstrap=True)
    price = Store("price", key=utf8, value=int64)
    due = Store("due", key=utf8, value=int64)
    out = Output(bills)

    def process(self, record: Record[str, int]) -> None:
        if record.topic == "prices":
            self.price.put(record.key, record.value)
            return
        self.due.put(record.key, self.due.get(record.key, 0) + record.value * self.price.get(record.key, -1000))
        self.out.send(record.key, self.due.get(record.key))


class Tell(Order):
    """Counts what it is sent."""

    orders = Input(ordered)
    out = Output(bills)


telling = Job("telling", [Order, Tell], partitions=2, mode="deterministic")


def fed(kit: Kit) -> Kit:
    """Feed a price of each item, and three orders of one."""
    for number in range(ITEMS):
        kit.feed(prices, f"item {number}", number)
    for _ in range(3):
        for number in range(ITEMS):
            kit.feed(orders, f"item {number}", 1)
    return kit


DUE = {f"item {number}": 3 * number for number in range(ITEMS)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_each_key_has_one_task_and_its_records_their_order(partitions: int, seed: int) -> None:
    """Orders, prices and the stream between stages meet in the task of their key, through crashes."""
    kit = fed(Kit(Job("billing", [Order, Bill], partitions=partitions)))
    kit.run(crashes=12, seed=seed)
    assert kit.state(Bill.due) == DUE
    of_item = {item: [due for at, due in kit.pairs(bills) if at == item] for item in DUE}
    assert of_item == {f"item {number}": [number, 2 * number, 3 * number] for number in range(ITEMS)}
    for store in (Order.seen, Bill.price):
        for number in range(partitions):
            assert {partition_of(item.encode(), partitions) for item in kit.state(store, number)} == {number}


@pytest.mark.parametrize("seed", range(4))
def test_a_deterministic_source_reads_several_partitions(seed: int) -> None:
    """Its decisions name the partition that each batch came from, and a successor takes them again."""
    kit = Kit(telling)
    for number in range(3 * ITEMS):
        kit.feed(orders, f"item {number % ITEMS}", 1)
    kit.run(crashes=12, seed=seed)
    assert kit.state("seen", stage="order") == kit.state("seen", stage="tell") == dict.fromkeys(DUE, 3)
    assert seed or kit.check_determinism() > 0


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
def test_the_other_guarantees_have_each_partition(guarantee: Any) -> None:
    """A crash skips or repeats records of each of them, and nothing else."""
    once = guarantee == "at-most-once"
    kit = Kit(
        Job("orders", [type("Order", (Order,), {"out": Output(bills)})], partitions=2), processing_guarantee=guarantee
    )
    for number in range(3 * ITEMS):
        kit.feed(orders, f"item {number % ITEMS}", 1)
    kit.run(crashes=6, seed=3)
    seen = kit.state(Order.seen)
    assert seen.keys() <= DUE.keys() if once else seen.keys() == DUE.keys()
    assert all(count <= 3 if once else count >= 3 for count in seen.values()), seen
    sent = Counter(kit.pairs(bills))
    assert all(count == 1 for count in sent.values()) if once else sent.total() >= 3 * ITEMS


def test_every_crash_of_a_small_job_changes_nothing() -> None:
    """At each step of each task, on this host and on another one."""
    kit = Kit(Job("billing", [Order, Bill], partitions=2))
    for number in range(6):
        kit.feed(prices, f"item {number}", number)
        kit.feed(orders, f"item {number}", 1)
    kit.run()
    assert kit.check_crashes(at_most=60) > 20


class Clock(Task):
    """Counts by minute, and drops what comes twice."""

    orders = Input(orders, deduplicate=ById(lambda record: f"{record.key} {record.value}", 3_600_000))
    minutes = TumblingWindow("minutes", key=utf8, value=int64, size_ms=60_000)
    out = Output(bills)

    def process(self, record: Record[str, int]) -> None:
        self.minutes.update(record.key, record.timestamp, lambda had: (had or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, window.value)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_event_time_is_the_least_of_the_tasks_partitions(mode: Mode) -> None:
    """No record is late while its partition is behind, and one that says nothing for a while holds time no more."""
    kit = Kit(Job("clock", [Clock], partitions=2, mode=mode))
    start = kit.now_ms
    for partition in range(8):
        for minute in range(5):
            at = start + minute * 60_000
            kit.feed(orders, f"key {partition}", minute, timestamp=at, partition=partition)
            kit.feed(orders, f"key {partition}", minute, timestamp=at, partition=partition)  # dropped
    kit.feed(orders, "far", 99, timestamp=start + 3_600_000, partition=0)
    kit.process()
    kit.advance(5 * kit.settings.checkpoint_interval_ms)
    behind = sorted([(f"key {partition}", 1) for partition in range(8)] * 4)  # the last minute is not over anywhere
    assert sorted(kit.pairs(bills)) == behind
    kit.run()
    ahead = [(f"key {partition}", 1) for partition in range(0, 8, 2)]  # of the task that has read what is far ahead
    assert sorted(kit.pairs(bills)) == sorted([*behind, *ahead])


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_no_record_is_late_behind_what_another_partition_has_at_hand(mode: Mode) -> None:
    """Both partitions had nothing for a while, so neither holds time back until it is read: that is in its order."""
    kit = Kit(Job("clock", [Clock], partitions=2, mode=mode))
    start = kit.now_ms
    for minutes in (range(1), range(10, 20), range(30, 40)):
        for partition in (0, 2):
            for minute in minutes:
                kit.feed(orders, f"key {partition}", minute, timestamp=start + minute * 60_000, partition=partition)
        kit.run()
    kit.drain()
    assert Counter(kit.pairs(bills)) == {("key 0", 1): 21, ("key 2", 1): 21}


@pytest.mark.parametrize("partitions", [3, 16])
def test_a_number_that_is_no_multiple_of_the_tasks_is_refused(partitions: int) -> None:
    """With both numbers, and those that are near and would do."""
    with pytest.raises(GraphError) as error:
        Job("billing", [Order], partitions=partitions)
    text = str(error.value)
    assert "topic 'orders' has 8 partitions (Topic(…, partitions=8)), and stage 'order', which reads it" in text
    assert f"has {partitions}: " in text
    near = {3: "Job(…, partitions=2) or Job(…, partitions=4)", 16: "write Job(…, partitions=8)"}
    assert near[partitions] in text


def test_stages_of_different_numbers_read_one_topic() -> None:
    """Both divide the number of its partitions."""
    other = type("Other", (Order,), {"partitions": 4, "out": Output(bills)})
    kit = Kit(Job("readers", [Order, other], partitions=2))
    for number in range(ITEMS):
        kit.feed(orders, f"item {number}", 1)
    kit.run(crashes=4, seed=1)
    assert kit.state("seen", stage="order") == kit.state("seen", stage="other") == dict.fromkeys(DUE, 1)


def test_a_stream_between_stages_has_a_partition_for_each_task() -> None:
    """Its declaration may not say another number; nor may two declarations of a topic."""
    counted = Topic("ordered", key=utf8, value=int64, partitions=8)
    sends, takes = type("Order", (Order,), {"out": Output(counted)}), type("Bill", (Bill,), {"ordered": Input(counted)})
    with pytest.raises(GraphError, match=r"'ordered' with partitions=, and stage 'order' .* Leave partitions= out"):
        Job("billing", [sends, takes], partitions=2)
    with pytest.raises(GraphError, match=r"'ordered' has partitions=8 in one declaration and None in another"):
        Job("billing", [sends, Bill], partitions=2)


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "3"])
def test_a_number_that_no_topic_can_have_is_refused(count: Any) -> None:
    """A topic has one partition or more."""
    with pytest.raises(ConfigError, match=r"topic t: partitions=.*: need a whole number above 0, or None"):
        Topic("t", key=utf8, value=int64, partitions=count)


def test_the_topics_have_the_numbers_of_their_declarations() -> None:
    """An input and an output that the job makes; streams and changelogs go by the tasks."""
    wide = Topic("bills", key=utf8, value=int64, partitions=12)
    job = Job("billing", [Order, type("Bill", (Bill,), {"out": Output(wide)})], partitions=2)
    assert [job.count_of(topic) for topic in ("orders", "prices", "bills")] == [8, 4, 12]
    assert [stream.partitions for stream in job.topology().streams] == [2]
    kit = fed(Kit(job))
    kit.run()
    assert kit.state(Bill.due) == DUE
    assert {partition for partition in range(12) if kit.outputs(wide, partition)} - {0, 1}
