"""Workers of stages with different numbers of tasks die by SIGKILL: each record counts once, in its key's task."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from grete.api.tasks.mode import Mode
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.logs.partition_reader import rows as all_rows
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob
from tests.execution.billing_job import billing, bills_of, orders_of, prices_of
from tests.worker.workers import LIMIT_S

ITEMS, ORDERS, WORKERS = 300, 20, 3


def rows(topic: str, partitions: int, value_of: int | None = None) -> list[ExternalRecord]:
    """Return a record for each item, in the partition of its key; its value is the item's number, or the one given."""
    found, now_ms = [], int(time.time() * 1_000)
    for item in range(ITEMS):
        key, value = b"%d" % item, item if value_of is None else value_of
        found.append(
            ExternalRecord(TopicPartition(topic, partition_of(key, partitions)), key, value.to_bytes(8), now_ms)
        )
    return found


def feed(run: LocalJob, name: str) -> None:
    """Append a price and some orders of each item."""
    orders = [row for _ in range(ORDERS) for row in rows(orders_of(name).name, 2, 1)]
    run.metadata.produce_with_meta([*orders, *rows(prices_of(name).name, 1)], {})


def until(run: LocalJob, share: int) -> None:
    """Let the workers go on until a third of what ``share`` of WORKERS + 1 feeds have brought is committed."""
    deadline, part = time.monotonic() + LIMIT_S, ITEMS * (ORDERS + 1)
    while sum(run.committed().values()) < part * share + part // 3:
        assert time.monotonic() < deadline, run.checkpoint_ids()
        run.poll(20)


@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("on", "mode"),
    [
        ("embedded", "aligned"),
        ("embedded", "deterministic"),
        pytest.param("kafka", "aligned", marks=pytest.mark.kafka),
    ],
)
def test_each_worker_dies_once_and_each_record_counts_once(
    request: pytest.FixtureRequest, tmp_path: Path, on: str, mode: Mode
) -> None:
    """Worker 0 has a task of each stage, worker 1 of two of them, worker 2 of the last alone (A6)."""
    name, file = f"billing-{on}-{mode}", tmp_path / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.execution.billing_job import billing\n"
        f"job = billing({mode!r}, {name!r})\n"
    )
    kafka = on == "kafka"
    address = LogAddress(f"kafka://{request.getfixturevalue('kafka_broker').bootstrap}") if kafka else LogAddress()
    job_directory = JobDirectory(tmp_path / "place", address=address)
    settings = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
    prices, orders, bills = (topic_of(name).name for topic_of in (prices_of, orders_of, bills_of))
    with closing(job_directory.open_log(group=name)) as log:
        log.create_topic(prices, 1, plain=True)
        log.create_topic(orders, 2, plain=True)
    with LocalJob(billing(mode, name), str(file), job_directory, settings) as run:
        assert run.supervisor.workers.keys() == set(range(WORKERS))
        for worker in range(WORKERS):
            feed(run, name)
            until(run, worker)
            run.supervisor.kill(worker)
        feed(run, name)
        ends, deadline = run.ends(), time.monotonic() + LIMIT_S
        while not run.drained(ends):
            assert time.monotonic() < deadline, run.checkpoint_ids()
            run.poll(20)
        run.stop()
        outputs = [TopicPartition(bills, partition) for partition in range(run.log.partitions(bills) or 0)]
        assert len(outputs) == 3
        found = [(row, each) for each in outputs for row in all_rows(run.log, each, 0, run.log.bounds(each)[1])]
    assert all(each.partition == partition_of(row.key or b"", 3) for row, each in found)
    billed = sorted((int(row.key or b""), int.from_bytes(row.value or b"", signed=True)) for row, _ in found)
    feeds = WORKERS + 1
    numbers = range(1, ORDERS * feeds + 1)
    assert billed == sorted((item, value) for item in range(ITEMS) for value in [*numbers, *[-item] * feeds])
