"""Topics of which each task reads every record (A2d), from outside and from a stage; in the kit, with crashes."""

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.testing import Kit

ITEMS = 30
HOUR_MS = 3_600_000
orders = Topic("orders", key=utf8, value=utf8)  # customer → item
prices = Topic("prices", key=utf8, value=int64)  # item → price
checked = Topic("checked", key=utf8, value=int64)
bills = Topic("bills", key=utf8, value=int64)  # customer → price


class Bill(Task):
    """Keeps all prices in each task, and bills orders by customer."""

    orders = Input(orders)
    prices = Input(prices, bootstrap=True, broadcast=True)
    known = Store("known", key=utf8, value=int64)
    out = Output(bills)

    def process(self, record: Record[str, str]) -> None:
        if record.topic == "prices":
            self.known.put(record.key, record.value)  # type: ignore[arg-type]  # a price
        else:
            self.out.send(record.key, self.known.get(record.value, -1))


class Check(Task):
    """Sends each price on."""

    prices = Input(prices)
    out = Output(checked)

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value)


class Keep(Task):
    """Keeps all that another stage sends, in each task."""

    checked = Input(checked, broadcast=True)
    known = Store("known", key=utf8, value=int64)
    out = Output(bills)

    def process(self, record: Record[str, int]) -> None:
        self.known.put(record.key, record.value)
        self.out.send(record.key, record.value)


def fed(kit: Kit) -> Kit:
    """Feed orders of all customers, older than the prices of what they order."""
    for number in range(ITEMS):
        kit.feed(orders, f"customer {number}", f"item {(number + 7) % ITEMS}", timestamp=kit.now_ms - HOUR_MS)
        kit.feed(prices, f"item {number}", number)
    return kit


BILLED = sorted((f"customer {number}", (number + 7) % ITEMS) for number in range(ITEMS))
PRICES = {f"item {number}": number for number in range(ITEMS)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_each_task_has_the_whole_table(mode: Mode, seed: int) -> None:
    """Customer and item are in different partitions, and each order finds its price, through crashes (A2d)."""
    kit = fed(Kit(Job("billing", [Bill], partitions=3, mode=mode)))
    kit.run(crashes=12, seed=seed)
    assert sorted(kit.pairs(bills)) == BILLED
    assert [kit.state(Bill.known, partition) for partition in range(3)] == [PRICES] * 3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("first", ["aligned", "deterministic"])
@pytest.mark.parametrize("second", ["aligned", "deterministic"])
def test_each_task_has_all_that_a_stage_sends(first: Mode, second: Mode, seed: int) -> None:
    """A record goes to all partitions of the stream, as one, and each task takes it once (A2d)."""
    if (first, second) == ("aligned", "deterministic"):
        second = "aligned"  # a deterministic stage reads only what is deterministic
    stages = [
        type("Checking", (Check,), {"name": "check", "mode": first}),
        type("Keeping", (Keep,), {"name": "keep", "mode": second}),
    ]
    kit = Kit(Job("keeping", stages, partitions=3))
    for item, price in PRICES.items():
        kit.feed(prices, item, price)
    kit.run(crashes=12, seed=seed)
    assert [kit.state("known", partition, stage="keep") for partition in range(3)] == [PRICES] * 3
    assert sorted(kit.pairs(bills)) == sorted([*PRICES.items()] * 3)


def test_at_least_once_each_task_has_the_whole_table() -> None:
    """The way to read a topic does not depend on the guarantee."""
    kit = fed(Kit(Job("billing", [Bill], partitions=3), processing_guarantee="at-least-once"))
    kit.run(crashes=6, seed=2)
    assert set(kit.pairs(bills)) == set(BILLED)


class Both(Task):
    """Reads by partition what another stage of the same job reads whole."""

    checked = Input(checked)
    seen = Store("seen", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.seen.put(record.key, record.partition)


def test_one_topic_goes_to_one_stage_whole_and_to_another_in_part() -> None:
    """Each reader of a stream says how it reads: a task of the one has all keys, all tasks of the other share them."""
    kit = Kit(Job("both", [Check, Keep, Both], partitions=2))
    for item, price in PRICES.items():
        kit.feed(prices, item, price)
    kit.run(crashes=6, seed=3)
    assert [kit.state(Keep.known, partition) for partition in range(2)] == [PRICES] * 2
    halves = [kit.state(Both.seen, partition) for partition in range(2)]
    assert (halves[0] | halves[1]).keys() == PRICES.keys()
    assert not halves[0].keys() & halves[1].keys()
