"""Workers that are killed between the slices of a commit: real processes, RocksDB and log (A7, A8, D5, R1)."""

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from framework.job.directory import JobDirectory
from framework.ports import ExternalRecord
from framework.state.local_reader import LocalReader
from grete import int64
from protocol.ids import TopicPartition
from tests.execution import killed_slices
from tests.execution.killed_slices import Count, open_job

NAMES, TOTALS = TopicPartition("names", 0), TopicPartition("totals", 0)
RECORDS, KEYS = 4_000, 60


def run(directory: Path, mode: str, where: str, count: int) -> int:
    """Run a worker; return how it ended."""
    command = [sys.executable, "-m", killed_slices.__name__, str(directory), mode, where, str(count)]
    return subprocess.run(command, check=False, timeout=100).returncode


@pytest.mark.parametrize(
    ("mode", "where", "count"),
    [
        *(("aligned", "slice", count) for count in (2, 3, 9)),
        *(("aligned", "chunk", count) for count in (2, 3, 9)),
        *(("deterministic", "slice", count) for count in (2, 3, 9, 12)),
        *(("deterministic", where, count) for where, count in (("part", 3), ("freeze", 2), ("chunk", 2), ("chunk", 5))),
    ],
)
def test_a_kill_between_two_slices_loses_and_repeats_nothing(tmp_path: Path, mode: str, where: str, count: int) -> None:
    """Whatever was sent or applied of a checkpoint: state is right, and each output is there once."""
    rand, directory = random.Random(count), tmp_path / "job"
    directory.mkdir()
    names = [f"name {rand.randrange(KEYS)}" for _ in range(RECORDS)]
    _, log = open_job(directory, mode)
    log.produce(0, 0, [ExternalRecord(NAMES, None, name.encode(), 1) for name in names])
    log.poll()
    assert run(directory, mode, where, count) == -signal.SIGKILL
    assert run(directory, mode, where, 0) == 0
    with LocalReader(JobDirectory(directory).state_directory, killed_slices.job_of(mode)) as reader:
        assert dict(reader.all(Count.counts)) == Counter(names)
    seen = Counter((row.key, int64.decode(row.value or b"")) for row in log.read(TOTALS, 0, 1 << 30))
    times = Counter(names)
    assert seen == {(name.encode(), number + 1): 1 for name in times for number in range(times[name])}
    log.close()
