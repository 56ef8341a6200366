"""A job in worker processes that die by SIGKILL while records come, and that then processes all that is left."""

import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from grete.api.jobs.job import Job
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.logs.partition_reader import rows as all_rows
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.worker.workers import LIMIT_S

EACH = 200  # records fed before each look
KILLS = 6
ON = pytest.mark.parametrize("on", ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])


class KilledRun(NamedTuple):
    """The outputs of a run. ``died``: the deaths that the supervisor has told."""

    fed: int
    rows: list[LogRow]
    died: list[str]


def job_file(folder: Path, imported: str, call: str) -> str:
    """Write a module of a job that tests hold; return its path."""
    file = folder / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\nfrom {imported}\njob = {call}\n"
    )
    return str(file)


def address_of(request: pytest.FixtureRequest, on: str) -> LogAddress:
    """Return the log of a run."""
    return LogAddress(f"kafka://{request.getfixturevalue('kafka_broker').bootstrap}") if on == "kafka" else LogAddress()


def run_killed(
    job: Job, file: str, job_directory: JobDirectory, settings: Settings, lines: str, outside: str
) -> KilledRun:
    """Feed numbers to topic ``lines``, each its own key, kill a worker behind each ``EACH``, and run to the end.

    At the end the command's look at the log finds that all is processed: nothing is held that a stop would lose.
    """
    fed = 0
    with closing(job_directory.open_log(group=job.name)) as log:
        log.create_topic(lines, 2, plain=True)
        with LocalJob(job, file, job_directory, settings, inputs=OutsideInputs([lines])) as run:
            for kill in range(KILLS + 1):
                records = [(TopicPartition(lines, n % 2), b"%d" % n) for n in range(fed, fed + EACH)]
                now = int(time.time() * 1_000)  # a broker deletes what is older than its retention
                log.produce(0, kill, [ExternalRecord(at, each, each, now) for at, each in records])
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
        partitions = [TopicPartition(outside, partition) for partition in range(2)]
        rows = [row for each in partitions for row in all_rows(log, each, 0, log.bounds(each)[1])]
    return KilledRun(fed, rows, died)
