"""A whole run over the embedded log, in worker processes: it waits for idle inputs, and tells of late records."""

import time
from pathlib import Path

import pytest

from framework.job.directory import JobDirectory
from framework.logs.embedded import EmbeddedLog
from framework.ports import ExternalRecord
from framework.settings import Settings
from framework.worker.local_job import LocalJob
from protocol.ids import TopicPartition
from tests.event_time.jobs import MINUTE, counting
from tests.worker.workers import LIMIT_S

START = 1_600_000_000_000
IDLE_MS = 1_000
NAME = "counted"


def _record(partition: int, value: str, minutes: float) -> ExternalRecord:
    job_directory = TopicPartition(f"{NAME}-in", partition)
    return ExternalRecord(job_directory, b"k", value.encode(), START + int(minutes * MINUTE))


def _run(
    directory: Path, processing_guarantee: str, *batches: list[ExternalRecord]
) -> tuple[dict[str, int], dict[str, int]]:
    """Run the job over records, a batch when the one before is used up; return value → count, task → late records."""
    file = directory / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.event_time.jobs import counting\njob = counting({NAME!r})\n"
    )
    job, job_directory = counting(NAME), JobDirectory(directory / "place")
    settings = Settings(event_time_idle_ms=IDLE_MS, processing_guarantee=processing_guarantee)  # type: ignore[arg-type]
    with LocalJob(job, str(file), job_directory, settings, fed=[f"{NAME}-in"]) as local:
        assert isinstance(local.log, EmbeddedLog)
        for records in batches:
            local.log.produce(0, 0, records)
            while not local.log.poll():
                local.log.wait(100)
            deadline = time.monotonic() + LIMIT_S
            while not local.drained(local.ends()):
                assert time.monotonic() < deadline
                local.poll(20)
        late = local.late()
        local.stop()
        rows = [row for p in range(2) for row in local.log.read(TopicPartition(f"{NAME}-counts", p), 0, 1 << 20)]
    counts: dict[str, int] = {}
    for row in rows:
        key = (row.key or b"").decode()
        counts[key] = counts.get(key, 0) + int.from_bytes(row.value or b"", "big")
    return counts, late


@pytest.mark.parametrize("processing_guarantee", ["exactly-once", "at-least-once"])
def test_a_run_waits_until_an_empty_partition_is_idle(tmp_path: Path, processing_guarantee: str) -> None:
    """Else its result would lack what the records that are there have long completed."""
    records = [_record(0, "v", minute) for minute in range(4)]
    counts, late = _run(tmp_path, processing_guarantee, records)
    assert counts == {"v": 3}
    assert sum(late.values()) == 0


def test_late_records_are_counted_where_people_look(tmp_path: Path) -> None:
    """Order holds across partitions, not inside one: what is behind much newer records is late, and said."""
    records = [_record(p, "v", minute) for minute in range(4) for p in range(2)]
    counts, late = _run(tmp_path, "exactly-once", records, [_record(0, "w", 0.5), _record(0, "w", 0.6)])
    assert counts == {"v": 6}
    assert sum(late.values()) == 2
    logs = "".join(path.read_text() for path in (tmp_path / "place").rglob("*.log"))
    assert "late records dropped" in logs
