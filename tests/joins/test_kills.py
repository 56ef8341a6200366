"""Workers that die by SIGKILL while they join two streams: each pair once, each record without a match once."""

import json
import time
from pathlib import Path

import pytest

from grete.api.tasks.mode import Mode
from grete.job.directory import JobDirectory
from grete.logs.partition_reader import rows as all_rows
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.joins.jobs import interval, job_of, late_topic, lefts, pairs_topic, rights
from tests.worker.workers import LIMIT_S

RECORDS = 3_000  # of each side and partition
FAR = 10_000_000
SETTINGS = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20, event_time_idle_ms=500)


def _records(partition: int) -> list[ExternalRecord]:
    """Return both sides: of seven left records, one has no match, two have one, and so on; out of order by 40 ms."""
    found = []
    for number in range(RECORDS):
        key, at = b"%d" % (number % 50), number * 10 + (number * 7 % 5) * 8
        found.append(ExternalRecord(TopicPartition(lefts.name, partition), key, b"L%d" % number, at))
        for each in range(number % 7 % 3):
            text = b"R%d.%d" % (number, each)
            found.append(ExternalRecord(TopicPartition(rights.name, partition), key, text, at + 100 + each))
    ends = [ExternalRecord(TopicPartition(topic.name, partition), b"end", b"end", FAR) for topic in (lefts, rights)]
    return [*found, *ends]


def _expected() -> list[tuple[str, str | None]]:
    matches = [
        (f"L{number}", f"R{number}.{each}" if number % 7 % 3 else None)
        for number in range(RECORDS)
        for each in range(max(1, number % 7 % 3))
    ]
    return sorted([*matches, *matches, *[("end", "end")] * 2], key=str)


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_killed_workers_join_each_record_once(tmp_path: Path, mode: Mode) -> None:
    """Two partitions, each worker killed twice when a part of its input is committed."""
    file = tmp_path / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.joins.jobs import interval, job_of\n"
        f"job = job_of(interval(0, 110, how='left', grace_ms=50), {mode!r}, partitions=2)\n"
    )
    job = job_of(interval(0, 110, how="left", grace_ms=50), mode, partitions=2)
    with LocalJob(
        job, str(file), JobDirectory(tmp_path / "place"), SETTINGS, inputs=OutsideInputs([lefts.name, rights.name])
    ) as run:
        records = [*_records(0), *_records(1)]
        run.log.produce(0, 0, records)
        while not run.log.poll():
            run.log.wait(100)
        killed, deadline = 0, time.monotonic() + LIMIT_S
        while not run.drained(run.ends()):
            assert time.monotonic() < deadline, run.checkpoint_ids()
            if killed < 4 and sum(run.committed().values()) > len(records) * (killed + 1) // 6:
                run.supervisor.kill(killed % 2)
                killed += 1
            run.poll(20)
        run.stop()
        places = [TopicPartition(pairs_topic.name, partition) for partition in range(2)]
        found = [row for place in places for row in all_rows(run.log, place, 0, run.log.bounds(place)[1])]
        late = [run.log.bounds(TopicPartition(late_topic.name, partition))[1] for partition in range(2)]
    assert killed == 4
    pairs = [json.loads(row.value or b"{}") for row in found]
    assert sorted(((pair["left"], pair["right"]) for pair in pairs), key=str) == _expected()
    assert late == [0, 0]
