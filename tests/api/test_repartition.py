"""A stage that gives records another key: the next one has all records of a key in one task, each once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete import DeadLetter, Input, Job, Record, Store, Task, Topic, int64, json, repartition, utf8
from grete.api.tasks.mode import Mode
from grete.errors import GraphError
from grete.protocol.partitioner import partition_of
from grete.testing import Kit
from tests.batch.taking_over import live, taken_over

ORDERS = Topic("orders", key=utf8, value=json(dict[str, str]))
BY_CUSTOMER = Topic("by-customer", key=utf8, value=json(dict[str, str]))
LETTERS = Topic("letters", key=utf8, value=utf8)


class Count(Task):
    orders = Input(BY_CUSTOMER)
    counts = Store("counts", key=utf8, value=int64)
    seen = Store("seen", key=utf8, value=utf8)

    def process(self, record: Record[str, dict[str, str]]) -> None:
        key = record.key or "-"
        self.counts.put(key, self.counts.get(key, 0) + 1)
        self.seen.put(key, f"{record.timestamp} {record.headers}")


def job_of(mode: Mode = "aligned", partitions: int = 2) -> Job:
    """Return a job that counts orders by the customer in their values."""
    source = Input(ORDERS, errors=DeadLetter(LETTERS))
    by = repartition(source, to=BY_CUSTOMER, key=lambda record: record.value["customer"])
    return Job("shop", stages=[by, Count], partitions=partitions, mode=mode)


CUSTOMERS = st.lists(st.sampled_from(["ann", "bob", "cid", ""]), min_size=1, max_size=30)


@settings(max_examples=12, deadline=None)
@given(CUSTOMERS, st.integers(0, 9))
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_each_record_is_counted_once_where_its_new_key_belongs(mode: Mode, customers: list[str], seed: int) -> None:
    """Through crashes. A record without the field is a letter, with the topic that it came from."""
    kit = Kit(job_of(mode))
    for number, customer in enumerate(customers):
        value = {"customer": customer} if customer else {}
        kit.feed(ORDERS, f"order {number}", value, timestamp=number, headers=[("n", b"%d" % number)])
    kit.run(crashes=3, seed=seed)
    wanted = {customer: customers.count(customer) for customer in customers if customer}
    for partition in range(2):
        ours = {key: n for key, n in wanted.items() if partition_of(key.encode(), 2) == partition}
        assert kit.state(Count.counts, partition) == ours
    last = {customer: number for number, customer in enumerate(customers) if customer}
    for customer, seen in kit.state(Count.seen).items():
        stamp = int(seen.partition(" ")[0])
        assert seen == f"{stamp} {(('n', b'%d' % stamp),)}"
        assert customers[stamp] == customer
        assert customer in last
    letters = kit.outputs(LETTERS)
    assert len(letters) == customers.count("")
    assert {dict(letter.headers)["grete.topic"] for letter in letters} <= {b"orders"}
    kit.stop()


def test_in_batch_and_then_live_it_is_the_same() -> None:
    """A history that another key has ordered: state and places are those of a live run."""
    one, other = Kit(job_of()), Kit(job_of())
    for kit in (one, other):
        for number in range(40):
            kit.feed(ORDERS, f"order {number}", {"customer": "abc"[number % 3]}, timestamp=number)
    ends = {at: len(partition.rows) for at, partition in one._data.partitions.items() if at.topic == "orders"}
    assert taken_over(other, {at: end // 2 for at, end in ends.items()}) == live(one)


def test_a_key_of_none_goes_to_each_partition_in_turn() -> None:
    """As any record without a key does."""
    kit = Kit(Job("shop", stages=[repartition(ORDERS, to=BY_CUSTOMER, key=lambda _: None), Count], partitions=2))
    for number in range(6):
        kit.feed(ORDERS, "one key", {"customer": "x"}, timestamp=number)
    kit.run()
    assert [kit.state(Count.counts, partition) for partition in range(2)] == [{"-": 3}, {"-": 3}]
    kit.stop()


def test_a_stage_has_the_name_of_its_topic_or_its_own() -> None:
    """It is in the state, so it does not depend on where the call is written."""
    by = repartition(ORDERS, to=BY_CUSTOMER, key=lambda record: record.value["customer"])

    class Mine(by):  # type: ignore[valid-type, misc]  # a class that a function has returned
        name = "mine"

    assert [stage.name for stage in Job("shop", stages=[by, Count]).stages] == ["to-by-customer", "count"]
    assert [stage.name for stage in Job("shop", stages=[Mine, Count]).stages] == ["mine", "count"]
    with pytest.raises(GraphError, match="clashes"):
        Job("shop", stages=[by, by, Count])
