"""Workers that die by SIGKILL while they read an input first: no order is billed before its price is there."""

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
from tests.execution.priced_job import bills_of, orders_of, pricing, table_of
from tests.worker.workers import LIMIT_S

TRIES = 6
ITEMS = 80_000  # a table that is read for a while: a kill is to come in the middle of it
ORDERED = range(0, ITEMS, 20)
EARLIER_MS = 100_000  # by time, the orders would come first; not so old that a broker deletes them


KAFKA = pytest.mark.kafka
PROVE = pytest.mark.prove
# Log, mode, partitions of a broadcast table; 0: it is read as the orders are, which have 2. Any two of log, mode and
# broadcast meet in `make test`; all three meet in `make prove`.
CASES = [
    ("embedded", "aligned", 0),
    ("embedded", "deterministic", 5),
    pytest.param("kafka", "aligned", 5, marks=KAFKA),
    pytest.param("kafka", "deterministic", 0, marks=KAFKA),
    pytest.param("embedded", "deterministic", 0, marks=PROVE),
    pytest.param("embedded", "aligned", 1, marks=PROVE),
    pytest.param("kafka", "aligned", 0, marks=[KAFKA, PROVE]),
    pytest.param("kafka", "deterministic", 1, marks=[KAFKA, PROVE]),
]


def rows(topic: str, values: dict[int, int], timestamp_ms: int, partitions: int = 2) -> list[ExternalRecord]:
    """Return a record for each item, in the partition of its key."""
    found = []
    for item, value in values.items():
        key = b"%d" % item
        found.append(
            ExternalRecord(TopicPartition(topic, partition_of(key, partitions)), key, value.to_bytes(8), timestamp_ms)
        )
    return found


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("on", "mode", "broadcast"), CASES)
def test_workers_killed_in_the_middle_of_a_table_bill_each_order_once(
    request: pytest.FixtureRequest, tmp_path: Path, on: str, mode: Mode, broadcast: int
) -> None:
    """Workers are killed when a part of the table is committed; the next ones go on there (A2c, A2d).

    On a busy machine a worker may have read the table before its first commit is seen: then it is done again.
    """
    address = LogAddress()
    if on == "kafka":
        address = LogAddress(f"kafka://{request.getfixturevalue('kafka_broker').bootstrap}")
    places = (tmp_path / str(number) for number in range(TRIES))
    assert any(_killed(place, address, mode, broadcast) == {0, 1} for place in places)


def _killed(place: Path, address: LogAddress, mode: Mode, broadcast: int) -> set[int]:
    """Run the job, and recount it; return the workers that were killed in the middle of the table."""
    place.mkdir()
    name, file = f"priced-{mode}-{broadcast}-{place.name}", place / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.execution.priced_job import pricing\n"
        f"job = pricing({mode!r}, {name!r}, broadcast={bool(broadcast)})\n"
    )
    job_directory = JobDirectory(place / "place", address=address)
    settings = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
    prices, orders, bills = (topic_of(name).name for topic_of in (table_of, orders_of, bills_of))
    with closing(job_directory.open_log(group=name)) as log:
        now_ms = int(time.time() * 1_000)
        log.create_topic(orders, 2, plain=True)
        log.create_topic(prices, broadcast or 2, plain=True)
        priced = rows(prices, {item: item for item in range(ITEMS)}, now_ms, broadcast or 2)
        log.produce(0, 0, [*rows(orders, dict.fromkeys(ORDERED, 2), now_ms - EARLIER_MS), *priced])
        while not log.poll():
            log.wait(100)
    killed: dict[int, int] = {}
    with LocalJob(pricing(mode, name, broadcast=bool(broadcast)), str(file), job_directory, settings) as run:
        ends, deadline = run.ends(), time.monotonic() + LIMIT_S
        while not run.drained(ends):
            assert time.monotonic() < deadline, run.checkpoint_ids()
            for partition in {0, 1} - killed.keys():
                table = [TopicPartition(prices, p) for p in (range(broadcast) if broadcast else [partition])]
                at = sum(run.committed().get(place, 0) for place in table)
                if 0 < at < sum(ends[place] for place in table):
                    run.supervisor.kill(partition)
                    killed[partition] = at
            run.poll(5)
        run.stop()
        outputs = [TopicPartition(bills, partition) for partition in range(2)]
        found = [row for each in outputs for row in all_rows(run.log, each, 0, run.log.bounds(each)[1])]
    billed = sorted((int(row.key or b""), int.from_bytes(row.value or b"", signed=True)) for row in found)
    assert billed == [(item, 2 * item) for item in ORDERED]
    return set(killed)
