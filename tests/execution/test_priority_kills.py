"""A worker dies by SIGKILL in the middle of an input with a priority: its successor goes on there, and nowhere else."""

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
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob
from tests.execution.alarms_job import alarming, topics_of
from tests.worker.workers import LIMIT_S

TRIES = 4
RECORDS = 30_000  # of each input


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
def test_a_worker_killed_among_the_alarms_takes_each_record_once_and_alarms_first(
    request: pytest.FixtureRequest, tmp_path: Path, on: str, mode: Mode
) -> None:
    """By time all readings would come first (A2e). On Kafka some do, while the alarms are fetched.

    On a busy machine a worker may have taken all before its first commit is seen: then it is done again.
    """
    address = LogAddress()
    if on == "kafka":
        address = LogAddress(f"kafka://{request.getfixturevalue('kafka_broker').bootstrap}")
    places = (tmp_path / str(number) for number in range(TRIES))
    assert any(_is_killed(place, address, mode) for place in places)


def _is_killed(place: Path, address: LogAddress, mode: Mode) -> bool:
    """Run the job, and recount it; tell whether its worker was killed in the middle."""
    place.mkdir()
    name, file = f"alarms-{mode}-{place.name}", place / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.execution.alarms_job import alarming\n"
        f"job = alarming({mode!r}, {name!r})\n"
    )
    job_directory = JobDirectory(place / "place", address=address)
    settings = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
    alarms, readings, taken = (TopicPartition(topic.name, 0) for topic in topics_of(name))
    with closing(job_directory.open_log(group=name)) as log:
        for partition in (alarms, readings):
            log.create_topic(partition.topic, 1, plain=True)
    now_ms = int(time.time() * 1_000)
    with LocalJob(alarming(mode, name), str(file), job_directory, settings) as run:
        for partition, earlier_ms in ((readings, 100_000), (alarms, 0)):
            fed = [ExternalRecord(partition, b"k", n.to_bytes(8), now_ms - earlier_ms) for n in range(RECORDS)]
            run.metadata.produce_with_meta(fed, {})
        ends, deadline, killed_at = run.ends(), time.monotonic() + LIMIT_S, 0
        while not run.drained(ends):
            assert time.monotonic() < deadline, run.checkpoint_ids()
            if not killed_at and run.committed()[alarms]:
                killed_at = run.committed()[alarms]
                run.supervisor.kill(0)
            run.poll(5)
        run.stop()
        rows = all_rows(run.log, taken, 0, run.log.bounds(taken)[1])
        found = [((row.key or b"").decode(), int.from_bytes(row.value or b"")) for row in rows]
    assert [count for _, count in found] == list(range(1, 2 * RECORDS + 1))
    assert sorted(key for key, _ in found) == sorted(f"{it} {n}" for it in ("alarm", "reading") for n in range(RECORDS))
    before = [key for key, _ in found[: [key for key, _ in found].index(f"alarm {RECORDS - 1}")] if key[0] == "r"]
    assert len(before) < (1 if address.embedded else RECORDS // 2)
    return killed_at > 0
