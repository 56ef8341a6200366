"""The driver reads bootstrap inputs to their ends before all others (A2c)."""

from dataclasses import replace

import pytest

from grete.core.graph.task_topology import TaskWiring, wire
from grete.execution.inputs.input_reader import InputReader
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.protocol.ids import TopicPartition
from tests.core.streams import A0, A1, JOB, Producer
from tests.execution.driving import Driven

TABLE = TopicPartition("outside", 0)  # a topic that Driven has made
SOURCE = wire(replace(JOB, external_inputs={0: ("in", "outside")}, bootstrap={0: frozenset({"outside"})}), 0, 0)
MIXED = wire(replace(JOB, external_inputs={1: ("outside",)}, bootstrap={1: frozenset({"outside"})}), 1, 0)
IN, P, Q, R = TopicPartition("in", 0), *(TopicPartition(name, 0) for name in "pqr")


def reader(*ordered: TopicPartition) -> tuple[InputReader, MemoryLogData]:
    """Return a reader of three partitions with two rows each, which it gives one by one; R has the oldest."""
    data = MemoryLogData(lambda: 0)
    log = MemoryLog(data)
    for age, partition in enumerate((P, Q, R)):
        log.create_topic(partition.topic, 1)
        for number in range(2):
            data.append(partition, None, b"x", 100 - 10 * age + number, None)
    into = InputReader(log, [P, Q, R], 1, ordered=ordered)
    for partition in (P, Q, R):
        into.seek(partition, 0)
    return into, data


@pytest.mark.parametrize("ordered", [(), (P, Q, R)])
def test_only_the_first_are_read_then_all(ordered: tuple[TopicPartition, ...]) -> None:
    """In turn or by timestamp: what is not to be read now is passed over, and loses nothing."""
    into, _ = reader(*ordered)
    first = [into.next_batch((P,)) for _ in range(3)]
    assert [None if batch is None else batch[0] for batch in first] == [P, P, None]
    rest = [batch[0] for _ in range(5) if (batch := into.next_batch()) is not None]
    assert sorted(rest) == [Q, Q, R, R]


def test_rows_at_hand_of_an_input_that_waits_stay_at_hand() -> None:
    """By timestamp, a row of another input was read ahead: it comes in its turn, once."""
    into, _ = reader(P, Q, R)
    batch = into.next_batch()
    assert batch is not None
    assert batch[0] == R
    assert into.next_batch((Q,)) is not None
    rest = [batch[0] for _ in range(5) if (batch := into.next_batch()) is not None]
    assert rest == [R, Q, P, P]


def test_a_source_processes_its_table_first_and_commits_on_the_way() -> None:
    """A successor in the middle of the table goes on there, and reads nothing else before its end."""
    task = Driven(SOURCE, checkpoint_interval_ms=100, batch_bytes_max=1)
    task.append(IN, b"x", b"y")
    task.append(TABLE, *(b"row %d" % number for number in range(4)))
    task.driver.start(nonce=b"0123456789abcdef", host="here", pid=1, wall_ms=0)
    while len(task.runner.processed) < 2:
        task.driver.tick()
        for delivery in task.log.poll():
            task.driver.delivered(delivery)
    task.now_ms += 100
    while not {"row 0", "row 1"} <= task.keys():
        task.driver.tick()
        for delivery in task.log.poll():
            task.driver.delivered(delivery)
    assert not {"x", "y"} & set(task.runner.processed)
    after = Driven(SOURCE, data=task.data, disk=task.disk, nonce=b"another process!", checkpoint_interval_ms=100)
    after.now_ms = task.now_ms
    after.start()
    rows = [each for each in after.runner.processed if each.startswith("row")]
    assert after.runner.processed == [*rows, "x", "y"]
    assert rows[-1] == "row 3"
    assert "row 0" not in rows


def test_a_stream_is_read_behind_the_table() -> None:
    """Also after a rollback: the whole checkpoint is processed again in the same order."""
    task = Driven(MIXED)
    task.append(TABLE, b"row")
    a0, a1 = Producer(task, A0), Producer(task, A1)
    for producer in (a0, a1):
        producer.rollback_marker(0)
    a0.send(1, "x")
    task.start()
    assert task.runner.processed == ["row", "x"]
    a0.rollback_marker(0)
    a0.send(1, "x'")
    task.run()
    assert task.runner.processed == ["row", "x", "row", "x'"]


def test_an_input_that_waits_for_a_table_is_not_idle() -> None:
    """It has records that were not read yet: were it idle, event time would pass them and drop them as late (E4)."""
    wiring = replace(SOURCE, keeps_time=True)
    task = Driven(wiring, event_time_idle_ms=1_000)
    task.append(IN, b"x")
    task.append(TABLE, b"row")
    task.driver.start(nonce=b"0123456789abcdef", host="here", pid=1, wall_ms=0)
    while not task.core.external.position or task.driver.status.name != "RUNNING":
        task.driver.tick()
        for delivery in task.log.poll():
            task.driver.delivered(delivery)
    seen = []
    for _ in range(4):  # twice the time without news makes an input idle
        task.now_ms += 1_001
        seen.append(task.driver.parts.inputs.event_time.next_idle(task.now_ms))
    assert (IN, False) not in seen
    task.run()
    assert task.runner.processed == ["row", "x"]
    task.now_ms += 1_001
    assert task.driver.parts.inputs.event_time.next_idle(task.now_ms) in ((IN, False), (TABLE, False))


@pytest.mark.parametrize("wiring", [SOURCE, replace(SOURCE, deterministic=True)])
def test_a_table_is_read_first_also_behind_an_open_transaction(
    wiring: TaskWiring, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows that its producer had sent when the task started are hidden by a stranger's transaction: it awaits them."""
    task = Driven(wiring)
    task.append(IN, b"x")
    task.append(TABLE, b"row 0")
    task.data.begin_transaction(TABLE)
    task.append(TABLE, b"row 1", b"row 2")
    task.start()
    for _ in range(3):
        task.now_ms += 10_000
        task.run()
    assert task.runner.processed == ["row 0"]
    (waits,) = [record for record in caplog.records if record.msg == "awaits a transaction"]
    assert "outside[0]: an open transaction begins at offset 1" in waits.__dict__["for"]
    task.data.end_transaction(TABLE)
    task.now_ms += 10_000
    task.run()
    assert task.runner.processed == ["row 0", "row 1", "row 2", "x"]


def test_a_transaction_that_began_later_is_not_awaited() -> None:
    """The table ends where it ended when the task started (A2c)."""
    task = Driven(SOURCE)
    task.append(IN, b"x")
    task.append(TABLE, b"row 0")
    task.driver.start(nonce=b"0123456789abcdef", host="here", pid=1, wall_ms=0)
    task.data.begin_transaction(TABLE)
    task.append(TABLE, b"row 1")
    task.run()
    assert task.runner.processed == ["row 0", "x"]
