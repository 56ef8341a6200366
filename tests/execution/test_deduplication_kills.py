"""Inputs that repeat and reorder, in worker processes that die by SIGKILL: each number counts once."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from grete.api.tasks.mode import Mode
from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.execution.repeated_job import NAME, counting
from tests.worker.workers import LIMIT_S

EACH = 3_000  # numbers of each session
PARTS = 4  # of the input: a worker is killed while the second and each later one is processed


def repeated(partition: int) -> list[ExternalRecord]:
    """Return the numbers of two sessions, some of them again, within a hundred places of where they belong.

    Behind one of ten is a record that cannot be decoded.
    """
    draw = random.Random(partition)
    sent = [(f"s{partition}{each}", number) for number in range(EACH) for each in "ab"]
    sent += draw.sample(sent, EACH)
    place = {index: number * 2 + draw.uniform(-50, 50) for index, (_, number) in enumerate(sent)}
    topic = TopicPartition(f"{NAME}-numbers", partition)
    rows = list[ExternalRecord]()
    for place_, index in enumerate(sorted(place, key=place.__getitem__)):
        session, number = sent[index]
        for value in [number.to_bytes(8), b"no number"][: 1 + (place_ % 10 == 0)]:
            rows.append(ExternalRecord(topic, session.encode(), value, 1_600_000_000_000 + number))
    return rows


@pytest.mark.parametrize(("kind", "mode"), [("id", "aligned"), ("sequence", "deterministic")])
def test_killed_workers_take_each_number_once(tmp_path: Path, kind: str, mode: Mode) -> None:
    """A killed worker neither loses a number nor takes one twice, as the numbers seen are state."""
    file = tmp_path / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.execution.repeated_job import counting\njob = counting({kind!r}, {mode!r})\n"
    )
    job_directory = JobDirectory(tmp_path / "place")
    settings = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
    with LocalJob(
        counting(kind, mode), str(file), job_directory, settings, inputs=OutsideInputs([f"{NAME}-numbers"])
    ) as run:
        log = job_directory.open_log()
        parts = [repeated(partition) for partition in range(2)]
        killed = 0
        for begin in range(0, len(parts[0]), len(parts[0]) // PARTS):
            log.produce(0, 0, [record for part in parts for record in part[begin : begin + len(part) // PARTS]])
            while not log.poll():
                log.wait(100)
            deadline = time.monotonic() + LIMIT_S
            while sum(run.committed().values()) <= begin:
                assert time.monotonic() < deadline, run.checkpoint_ids()
                run.poll(20)
            if begin:
                run.supervisor.kill(killed % 2)
                killed += 1
        deadline = time.monotonic() + LIMIT_S
        while not run.drained(run.ends()):
            assert time.monotonic() < deadline, run.checkpoint_ids()
            run.poll(20)
        dropped, failures = run.reports.dropped, run.reports.failures
        run.stop()
        rows = [row for p in range(2) for row in log.read(TopicPartition(f"{NAME}-counts", p), 0, 1 << 22)]
        log.close()
    assert killed == PARTS - 1
    taken = Counter((row.key, int.from_bytes(row.value or b"")) for row in rows)
    wanted = {(f"s{p}{each}".encode(), number): 1 for p in range(2) for each in "ab" for number in range(EACH)}
    assert taken == wanted
    assert 0 < sum(dropped["duplicate"].values())
    assert 0 < sum(dropped["failed"].values())  # a metric: a killed worker takes what it had not told with it
    assert all("serde int64 cannot decode" in error and f"topic {NAME}-numbers" in error for error in failures.values())
    logs = "".join(path.read_text() for path in (tmp_path / "place").rglob("*.log*"))
    assert '"duplicate records dropped"' in logs
    assert '"failed records dropped"' in logs
