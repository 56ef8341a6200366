"""Inputs that are read to their ends first (A2c): at each start, before all others, while checkpoints go on."""

from dataclasses import replace

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.graph.task_topology import wire
from grete.protocol.ids import TopicPartition
from tests.core.deterministic.scenario import Logical
from tests.core.scenario import Scenario
from tests.core.streams import A0, A1, IN, JOB, Log, Producer, T

TABLE = TopicPartition("table", 0)
SOURCE = wire(replace(JOB, external_inputs={0: ("in", "table")}, bootstrap={0: frozenset({"table"})}), 0, 0)
MIXED = wire(replace(JOB, external_inputs={1: ("table",)}, bootstrap={1: frozenset({"table"})}), 1, 0)


def table_of(*rows: bytes) -> Log:
    """Return a log with these rows in the table."""
    log = Log()
    log.append(TABLE, *rows)
    return log


def first(task: Scenario) -> list[TopicPartition]:
    """Return the partitions that are to be read before all others."""
    return list(task.core.external.read_first)


def process(task: Scenario, next_offset: int, *, ended: bool = False) -> list[do.Action]:
    """Process the rows of the table up to an offset."""
    return task.step(on.ExternalProcessed(TABLE, next_offset, ended, 10))


def test_a_bootstrap_input_is_the_only_one_until_its_end() -> None:
    """Only it may be read before the end that it had at the start; what comes later holds nothing back (A2c)."""
    task = Scenario(table_of(b"1", b"2"), SOURCE).start()
    assert SOURCE.bootstrap == (TABLE,)
    assert (first(task), task.core.external.waits(IN)) == ([TABLE], True)
    assert not task.core.external.waits(TABLE)
    process(task, 1)
    assert first(task) == [TABLE]
    assert [task.core.external.needs(*at) for at in ((TABLE, 1), (TABLE, 2), (IN, 0))] == [True, False, False]
    task.log.append(TABLE, b"3")
    process(task, 2)
    assert (first(task), task.core.external.waits(IN)) == ([], False)


def test_an_empty_bootstrap_input_holds_nothing_back() -> None:
    """Its end is where it begins (A2c)."""
    assert first(Scenario(Log(), SOURCE).start()) == []


def test_checkpoints_go_on_while_a_source_reads_its_table() -> None:
    """The position in the table is part of each commit; a successor goes on there, to the end as of now (A2, A2c)."""
    task = Scenario(table_of(b"1", b"2", b"3"), SOURCE).start()
    process(task, 1)
    task.tick(100)
    offsets = {entry.topic: entry.offset for entry in task.log.commits(SOURCE)[-1].external}
    assert offsets == {"in": 0, "table": 1}
    task.log.append(TABLE, b"4")
    after = task.successor(same_host=False).start()
    assert (after.core.external.position[TABLE], first(after)) == (1, [TABLE])
    process(after, 3)
    assert first(after) == [TABLE]
    process(after, 4)
    assert first(after) == []


def test_a_later_start_waits_only_if_it_is_behind() -> None:
    """A table that was read to its end and has not grown holds nothing back (A2c)."""
    task = Scenario(table_of(b"1"), SOURCE).start()
    process(task, 1)
    task.tick(100)
    assert first(task.successor().start()) == []


def test_an_end_without_a_record_is_reached_when_nothing_more_comes() -> None:
    """A log may end with messages that no reader sees: the driver says that the input has ended (A2c, S1)."""
    task = Scenario(table_of(b"1", b"no record"), SOURCE).start()
    process(task, 1)
    assert first(task) == [TABLE]
    process(task, 1, ended=True)
    assert first(task) == []


def test_a_stream_waits_for_the_table_and_waits_again_after_a_rollback() -> None:
    """A rollback takes the position in the table back; the stream waits again, to the same end (A2c, R4)."""
    log = table_of(b"1", b"2")
    a0, a1 = Producer(log, A0), Producer(log, A1)
    for producer in (a0, a1):
        producer.rollback_marker(0)
    a0.send(1, "x")
    with pytest.raises(AssertionError, match=r"j.a.t.b\[0\] was read before its turn"):
        Scenario(log, MIXED).start().read(T)
    task = Scenario(log, MIXED).start()
    process(task, 2)
    task.read(T)
    assert task.open == ["x"]
    a0.rollback_marker(0)
    task.read(T, 1)
    assert (task.core.generation, task.core.external.position[TABLE]) == (3, 0)
    assert task.core.external.waits(T)
    process(task, 2)
    a0.mark(1)
    a1.mark(1)
    task.read(T)
    assert task.log.commits(MIXED)[-1].external[0].offset == 2


def test_a_deterministic_source_decides_on_its_table_first() -> None:
    """No other row is decided before the table's; what was decided is replayed in its order (A2c, D2)."""
    wiring = replace(SOURCE, deterministic=True, bootstrap=(IN,), external=(IN, TABLE))
    log = Log()
    log.append(IN, b"1", b"2")
    task = Logical(log, wiring).start()
    with pytest.raises(AssertionError, match=r"table\[0\] was read before its turn"):
        task.core.step(on.ExternalBatch(TABLE, 0, 1, 1, 0, 0, False))
    task.take("1")
    assert task.core.external.waits(TABLE)
    after = task.successor().start()
    assert (after.names, after.core.external.waits(TABLE)) == (["1"], True)
    after.take("2")
    assert not after.core.external.waits(TABLE)
