"""Inputs that are read first, in the kit, with crashes: a task has its whole table before its first record."""

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.errors import GraphError
from grete.testing import Kit
from tests.execution.priced_job import bills_of, orders_of, pricing, table_of

ITEMS = 40
HOUR_MS = 3_600_000
orders, prices, bills = (topic_of("priced") for topic_of in (orders_of, table_of, bills_of))


def fed(kit: Kit) -> Kit:
    """Feed orders that are older than their prices: by time, they would come first."""
    for number in range(ITEMS):
        kit.feed(orders, f"item {number}", 2, timestamp=kit.now_ms - HOUR_MS)
        kit.feed(prices, f"item {number}", number)
    return kit


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_each_record_finds_the_whole_table(mode: Mode) -> None:
    """Orders that are older than the prices, and that were there before them, are billed by them (A2c)."""
    kit = fed(Kit(pricing(mode)))
    kit.run()
    assert sorted(kit.pairs(bills)) == sorted((f"item {number}", 2 * number) for number in range(ITEMS))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_crashes_on_the_way_through_the_table_change_nothing(mode: Mode, seed: int) -> None:
    """A task that dies in the middle of its table goes on there, and takes its orders behind its end (A2c)."""
    kit = fed(Kit(pricing(mode)))
    kit.run(crashes=12, seed=seed)
    assert sorted(kit.pairs(bills)) == sorted((f"item {number}", 2 * number) for number in range(ITEMS))


def test_at_least_once_each_record_finds_the_whole_table() -> None:
    """The order of reading does not depend on the guarantee."""
    kit = fed(Kit(pricing(), processing_guarantee="at-least-once"))
    kit.run(crashes=5, seed=1)
    assert set(kit.pairs(bills)) == {(f"item {number}", 2 * number) for number in range(ITEMS)}


def test_what_comes_to_the_table_while_it_is_down_comes_first_too() -> None:
    """A start that is behind reads on to the end of then (A2c)."""
    kit = fed(Kit(pricing()))
    kit.run()
    kit.crash_all()
    kit.feed(orders, "new", 3, timestamp=kit.now_ms - HOUR_MS)
    kit.feed(prices, "new", 5)
    kit.run()
    assert ("new", 15) in kit.pairs(bills)


lines = Topic("lines", key=utf8, value=int64)
sent = Topic("sent", key=utf8, value=int64)


class Send(Task):
    """Sends each line on."""

    lines = Input(lines)
    out = Output(sent)

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value)


class Enrich(Task):
    """Reads a table first, then what another stage sends."""

    sent = Input(sent)
    prices = Input(prices, bootstrap=True)
    known = Store("known", key=utf8, value=int64)
    out = Output(bills)

    def process(self, record: Record[str, int]) -> None:
        if record.topic == prices.name:
            self.known.put(record.key, record.value)
        else:
            self.out.send(record.key, self.known.get(record.key, -1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_stream_from_another_stage_waits_for_the_table(mode: Mode, seed: int) -> None:
    """Also when a producer dies and the task rolls back to before its table (A2c, R4); producers of both modes."""
    first = type("First", (Send,), {"name": "first", "mode": mode})
    kit = Kit(Job("enriching", [first, Enrich], partitions=2))
    for number in range(ITEMS):
        kit.feed(lines, f"item {number}", 1, timestamp=kit.now_ms - HOUR_MS)
        kit.feed(prices, f"item {number}", number)
    kit.run(crashes=12, seed=seed)
    assert sorted(kit.pairs(bills)) == sorted((f"item {number}", number) for number in range(ITEMS))


def test_a_stream_cannot_be_read_first() -> None:
    """Its producer runs as long as the job: there is no end to read to before the others."""

    class Wrong(Task):
        sent = Input(sent, bootstrap=True)

        def process(self, record: Record[str, int]) -> None: ...

    with pytest.raises(
        GraphError,
        match=r"stage 'wrong' reads topic 'sent' with bootstrap=, and stage 'send' of this job writes it: a stream "
        r"between stages has no end while the job runs. Leave bootstrap= out, .* or let a job of its own write 'sent'",
    ):
        Job("job", [Send, Wrong])
