"""A whole run over the embedded log, in worker processes: it waits for idle inputs, and tells of late records."""

import io
import re
import time
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from grete.api.tasks.mode import Mode
from grete.cli.feeding import tell_timers
from grete.cli.output.progress import Screen
from grete.job.directory import JobDirectory
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.event_time.jobs import MINUTE, counting, windows_in_a_row
from tests.worker.workers import LIMIT_S

START = 1_600_000_020_000  # a full minute
IDLE_MS = 1_000
INTERVAL_MS = 1_000  # a status comes ten times in it, so a kill meets what is not committed
NAME = "counted"


def _record(partition: int, value: str, minutes: float) -> ExternalRecord:
    return ExternalRecord(TopicPartition(f"{NAME}-in", partition), b"k", value.encode(), START + int(minutes * MINUTE))


def _run(
    directory: Path, way: str, *batches: list[ExternalRecord], kills: int = 0, drain: bool = False
) -> tuple[dict[str, int], dict[str, int]]:
    """Run the job over records, a batch when the one before is used up; return value → count, task → late records.

    ``drain``: and drain it, while its workers are killed.
    """
    mode = _mode(way)
    file = directory / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.event_time.jobs import counting\njob = counting({NAME!r}, 2, {mode!r})\n"
    )
    job, job_directory = counting(NAME, 2, mode), JobDirectory(directory / "place")
    settings = Settings(event_time_idle_ms=IDLE_MS, processing_guarantee=_guarantee(way))
    with LocalJob(job, str(file), job_directory, settings, inputs=OutsideInputs([f"{NAME}-in"])) as local:
        killed = 0
        for records in batches:
            _feed(local, records)
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
        return _counts(local), late


def _feed(local: LocalJob, records: list[ExternalRecord]) -> None:
    assert isinstance(local.log, EmbeddedLog)
    local.log.produce(0, 0, records)
    while not local.log.poll():
        local.log.wait(100)


def _counts(local: LocalJob) -> dict[str, int]:
    """Return value → count, of all windows that a reader sees."""
    partitions = (TopicPartition(f"{NAME}-counts", number) for number in range(local.job.workers))
    rows = [row for partition in partitions for row in local.log.read(partition, 0, 1 << 20)]
    counts: dict[str, int] = {}
    for row in rows:
        key = (row.key or b"").decode()
        counts[key] = counts.get(key, 0) + int.from_bytes(row.value or b"", "big")
    return counts


@pytest.mark.parametrize("way", ["exactly-once", "at-most-once", "at-least-once", "deterministic"])
def test_what_a_worker_said_before_its_end_does_not_end_a_run(tmp_path: Path, way: str) -> None:
    """Killed behind its last windows, ahead of their commit: its successor's first commit, without them, is not it."""
    (file := tmp_path / "job.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.event_time.jobs import windows_in_a_row\njob = windows_in_a_row({NAME!r}, {_mode(way)!r})\n"
    )
    settings = Settings(checkpoint_interval_ms=INTERVAL_MS, processing_guarantee=_guarantee(way))
    job = windows_in_a_row(NAME, _mode(way))
    with LocalJob(
        job, str(file), JobDirectory(tmp_path / "place"), settings, inputs=OutsideInputs([f"{NAME}-in"])
    ) as local:
        _feed(local, [_record(0, "v", 0.5)])
        deadline, ends = time.monotonic() + LIMIT_S, local.ends()
        while not local.drained(ends):
            assert time.monotonic() < deadline
            local.poll(20)
        local.drain(ends)
        worker, killed = local.supervisor.workers[0], False
        while not local.drained({}):
            assert time.monotonic() < deadline
            local.poll(20)
            said = [task.ended_in for task in worker.reports.tasks.values()]
            if not killed and said and None not in said:
                killed = not local.drained({})
                local.supervisor.kill(0)
                interval = time.time() // (INTERVAL_MS / 1_000)
                while time.time() // (INTERVAL_MS / 1_000) == interval:  # then the next one commits as soon as it can
                    local.log.wait(20)
        assert killed
        found = _counts(local)
        assert found == {"v": 1} or (way == "at-least-once" and found["v"] > 1), found
        assert local.waiting_timers() == 0
        local.stop()


def _mode(way: str) -> Mode:
    return "deterministic" if way == "deterministic" else "aligned"


def _guarantee(way: str) -> Literal["exactly-once", "at-most-once", "at-least-once"]:
    return "at-least-once" if way == "at-least-once" else "at-most-once" if way == "at-most-once" else "exactly-once"


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


@pytest.mark.parametrize("way", ["exactly-once", "at-most-once", "deterministic"])
def test_a_drained_job_closes_each_window_once(tmp_path: Path, way: str) -> None:
    """Workers are killed by SIGKILL while the end goes through the stages: each record counts once, none is left."""
    records = [_record(partition, f"v{tick % 5}", tick / 100) for tick in range(1_000) for partition in range(2)]
    counts, late = _run(tmp_path, way, records, drain=True)
    assert counts == {f"v{n}": 400 for n in range(5)}
    assert sum(late.values()) == 0


@pytest.mark.parametrize("way", ["exactly-once", "at-most-once", "at-least-once", "deterministic"])
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
