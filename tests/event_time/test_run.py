"""A whole run over the embedded log, in worker processes: it waits for idle inputs, and tells of late records."""

import io
import re
import time
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from framework.api.mode import Mode
from framework.cli.feeding import tell_timers
from framework.cli.progress import Screen
from framework.job.directory import JobDirectory
from framework.logs.embedded import EmbeddedLog
from framework.ports import ExternalRecord
from framework.settings import Settings
from framework.worker.local_job import LocalJob
from protocol.ids import TopicPartition
from tests.event_time.jobs import MINUTE, counting
from tests.worker.workers import LIMIT_S

START = 1_600_000_020_000  # a full minute
IDLE_MS = 1_000
NAME = "counted"


def _record(partition: int, value: str, minutes: float) -> ExternalRecord:
    return ExternalRecord(TopicPartition(f"{NAME}-in", partition), b"k", value.encode(), START + int(minutes * MINUTE))


def _run(
    directory: Path, way: str, *batches: list[ExternalRecord], kills: int = 0, drain: bool = False
) -> tuple[dict[str, int], dict[str, int]]:
    """Run the job over records, a batch when the one before is used up; return value → count, task → late records.

    ``drain``: and drain it, while its workers are killed.
    """
    mode: Mode = "deterministic" if way == "deterministic" else "aligned"
    file = directory / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.event_time.jobs import counting\njob = counting({NAME!r}, 2, {mode!r})\n"
    )
    job, job_directory = counting(NAME, 2, mode), JobDirectory(directory / "place")
    guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once" if way != "at-least-once" else "at-least-once"
    settings = Settings(event_time_idle_ms=IDLE_MS, processing_guarantee=guarantee)
    with LocalJob(job, str(file), job_directory, settings, fed=[f"{NAME}-in"]) as local:
        assert isinstance(local.log, EmbeddedLog)
        killed = 0
        for records in batches:
            local.log.produce(0, 0, records)
            while not local.log.poll():
                local.log.wait(100)
            deadline = time.monotonic() + LIMIT_S
            while not local.drained(local.ends()):
                assert time.monotonic() < deadline
                local.poll(20)
                if killed < kills and sum(local.committed().values()) > len(records) * (killed + 1) // (kills + 2):
                    local.supervisor.kill(killed % 2)
                    killed += 1
        assert killed == kills
        if drain:
            _drain(local)
        late = local.reports.dropped["late"]
        local.stop()
        rows = [row for p in range(2) for row in local.log.read(TopicPartition(f"{NAME}-counts", p), 0, 1 << 20)]
    counts: dict[str, int] = {}
    for row in rows:
        key = (row.key or b"").decode()
        counts[key] = counts.get(key, 0) + int.from_bytes(row.value or b"", "big")
    return counts, late


def _drain(local: LocalJob) -> None:
    """Drain a job whose workers die again and again while it goes on; after that nothing waits."""
    assert local.waiting_timers() > 0
    tell_timers(local, Screen(Console(file=(said := io.StringIO()), width=200)), "; and so on")
    assert re.search(
        r"waiting for a later record: \d+ timers, of Timers\(\), windows and joins; and so on", said.getvalue()
    )
    local.drain(local.ends())
    deadline, looks = time.monotonic() + LIMIT_S, 0
    while not local.drained({}):
        assert time.monotonic() < deadline
        local.poll(20)
        looks += 1
        if looks in (1, 5, 20, 40):
            local.supervisor.kill(looks % 2)
    assert looks > 5
    while local.waiting_timers():  # the log decides; what a worker says of itself comes later
        assert time.monotonic() < deadline
        local.poll(20)


@pytest.mark.parametrize("way", ["exactly-once", "deterministic"])
def test_a_drained_job_closes_each_window_once(tmp_path: Path, way: str) -> None:
    """Workers are killed by SIGKILL while the end goes through the stages: each record counts once, none is left."""
    records = [_record(partition, f"v{tick % 5}", tick / 100) for tick in range(1_000) for partition in range(2)]
    counts, late = _run(tmp_path, way, records, drain=True)
    assert counts == {f"v{n}": 400 for n in range(5)}
    assert sum(late.values()) == 0


@pytest.mark.parametrize("way", ["exactly-once", "at-least-once", "deterministic"])
def test_a_run_waits_until_an_empty_partition_is_idle(tmp_path: Path, way: str) -> None:
    """Else its result would lack what the records that are there have long completed."""
    records = [_record(0, "v", minute) for minute in range(4)]
    counts, late = _run(tmp_path, way, records)
    assert counts == {"v": 3}
    assert sum(late.values()) == 0


@pytest.mark.parametrize("way", ["exactly-once", "deterministic"])
def test_late_records_are_counted_where_people_look(tmp_path: Path, way: str) -> None:
    """Order holds across partitions, not inside one: what is behind much newer records is late, and said."""
    records = [_record(p, "v", minute) for minute in range(4) for p in range(2)]
    counts, late = _run(tmp_path, way, records, [_record(0, "w", 0.5), _record(0, "w", 0.6)])
    assert counts == {"v": 6}
    assert sum(late.values()) == 2
    logs = "".join(path.read_text() for path in (tmp_path / "place").rglob("*.log"))
    assert "late records dropped" in logs


@pytest.mark.parametrize("way", ["exactly-once", "deterministic"])
def test_killed_workers_close_each_window_once(tmp_path: Path, way: str) -> None:
    """Partitions of unequal density behind a repartition, workers killed by SIGKILL: each record counts once."""
    records = [_record(0, f"v{tick % 5}", tick / 100) for tick in range(20_000)]
    records += [_record(1, f"v{tick % 5}", tick / 5) for tick in range(1_000)]
    counts, late = _run(tmp_path, way, records, kills=4)
    assert counts == {f"v{n}": 3_980 + 199 for n in range(5)}  # the last minute's window stays open
    assert sum(late.values()) == 0
