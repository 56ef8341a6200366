"""Without a guarantee, in worker processes that die by SIGKILL: user code runs once for a record, or not at all."""

import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.logs.partition_reader import rows as all_rows
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.local_job import LocalJob
from tests.execution.marked_job import lines_of, marking, marks_of
from tests.worker.workers import LIMIT_S

EACH = 200  # records fed before each look
KILLS = 6


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("on", ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_killed_workers_process_no_record_twice(request: pytest.FixtureRequest, tmp_path: Path, on: str) -> None:
    """A line of the trace is there once at most, and what is lost is what the killed workers had read.

    At the end the command's look at the log finds that all is processed: nothing is held that a stop would lose.
    """
    name, file, trace = f"marked-{on}", tmp_path / "job.py", tmp_path / "trace"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.execution.marked_job import marking\njob = marking({name!r}, {str(trace)!r})\n"
    )
    address = LogAddress()
    if on == "kafka":
        address = LogAddress(f"kafka://{request.getfixturevalue('kafka_broker').bootstrap}")
    job_directory = JobDirectory(tmp_path / "place", address=address)
    settings = Settings(processing_guarantee="none", checkpoint_interval_ms=50, restart_backoff_ms=20)
    lines, fed = lines_of(name).name, 0
    with closing(job_directory.open_log(group=name)) as log:
        log.create_topic(lines, 2, plain=True)
        with LocalJob(marking(name, str(trace)), str(file), job_directory, settings, fed=[lines]) as run:
            for kill in range(KILLS + 1):
                records = [(TopicPartition(lines, n % 2), b"%d" % n) for n in range(fed, fed + EACH)]
                log.produce(0, kill, [ExternalRecord(at, each, each, 1_600_000_000_000) for at, each in records])
                fed += EACH
                while not log.poll():
                    log.wait(100)
                deadline = time.monotonic() + LIMIT_S
                while sum(run.committed().values()) <= fed - EACH:
                    assert time.monotonic() < deadline, run.checkpoint_ids()
                    run.poll(5)
                if kill < KILLS:
                    run.supervisor.kill(kill % 2)
            deadline = time.monotonic() + LIMIT_S
            while not run.drained(run.ends()):
                assert time.monotonic() < deadline, run.checkpoint_ids()
                run.poll(20)
            run.stop()
            died = run.supervisor.news
        outside = [TopicPartition(marks_of(name).name, partition) for partition in range(2)]
        rows = [row for each in outside for row in all_rows(log, each, 0, log.bounds(each)[1])]
    ran, shown = Counter(trace.read_text().splitlines()), Counter(row.value for row in rows)
    assert set(ran.values()) == {1}, died
    assert set(shown.values()) == {1}, died
    split = sum(line.startswith("split") for line in ran)
    assert fed - KILLS * EACH <= split <= fed, died  # each kill takes one batch of lines at most
    last = {b"%d" % number for number in range(fed - EACH, fed)}
    assert last <= set(shown), f"no worker was killed after the last batch: {died}"
