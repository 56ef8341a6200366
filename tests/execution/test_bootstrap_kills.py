"""Workers that die by SIGKILL while they read an input first: no order is billed before its price is there."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from framework.api.mode import Mode
from framework.job.directory import JobDirectory
from framework.logs.address import LogAddress
from framework.logs.partition_reader import rows as all_rows
from framework.ports import ExternalRecord
from framework.settings import Settings
from framework.worker.local_job import LocalJob
from protocol.ids import TopicPartition
from protocol.partitioner import partition_of
from tests.execution.priced_job import bills_of, orders_of, pricing, table_of
from tests.worker.workers import LIMIT_S

ITEMS = 60_000
ORDERED = range(0, ITEMS, 20)
ORDERS_MS, PRICES_MS = 1_600_000_000_000, 1_600_000_100_000  # by time, the orders would come first


def rows(topic: str, values: dict[int, int], timestamp_ms: int) -> list[ExternalRecord]:
    """Return a record for each item, in the partition of its key."""
    found = []
    for item, value in values.items():
        key = b"%d" % item
        found.append(ExternalRecord(TopicPartition(topic, partition_of(key, 2)), key, value.to_bytes(8), timestamp_ms))
    return found


@pytest.mark.chaos
@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("on", ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_workers_killed_in_the_middle_of_a_table_bill_each_order_once(
    request: pytest.FixtureRequest, tmp_path: Path, on: str, mode: Mode
) -> None:
    """Each worker is killed when it has committed a part of its table; the next one goes on there (A2c)."""
    name, file = f"priced-{on}-{mode}", tmp_path / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.execution.priced_job import pricing\njob = pricing({mode!r}, {name!r})\n"
    )
    kafka = on == "kafka"
    address = LogAddress(f"kafka://{request.getfixturevalue('kafka_broker').bootstrap}") if kafka else LogAddress()
    job_directory = JobDirectory(tmp_path / "place", address=address)
    settings = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
    prices, orders, bills = (topic_of(name).name for topic_of in (table_of, orders_of, bills_of))
    with closing(job_directory.open_log(group=name)) as log:
        for topic in (prices, orders):
            log.create_topic(topic, 2, plain=True)
        table = rows(prices, {item: item for item in range(ITEMS)}, PRICES_MS)
        log.produce(0, 0, [*rows(orders, dict.fromkeys(ORDERED, 2), ORDERS_MS), *table])
        while not log.poll():
            log.wait(100)
    killed: dict[int, int] = {}
    with LocalJob(pricing(mode, name), str(file), job_directory, settings) as run:
        ends, deadline = run.ends(), time.monotonic() + LIMIT_S
        while not run.drained(ends):
            assert time.monotonic() < deadline, run.checkpoint_ids()
            for partition in {0, 1} - killed.keys():
                at = run.committed().get(TopicPartition(prices, partition), 0)
                if 0 < at < ends[TopicPartition(prices, partition)]:
                    run.supervisor.kill(partition)
                    killed[partition] = at
            run.poll(20)
        run.stop()
        outputs = [TopicPartition(bills, partition) for partition in range(2)]
        found = [row for each in outputs for row in all_rows(run.log, each, 0, run.log.bounds(each)[1])]
    assert killed.keys() == {0, 1}
    billed = sorted((int(row.key or b""), int.from_bytes(row.value or b"", signed=True)) for row in found)
    assert billed == [(item, 2 * item) for item in ORDERED]
