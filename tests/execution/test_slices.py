"""A commit goes by the slice, in turn with input, and a kill between two slices is no loss (A7, A8, D5, R1)."""

import random
import signal
import subprocess
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

from grete import int64
from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.state.read.local_reader import LocalReader
from tests.execution import killed_slices
from tests.execution.driving import Step, driven
from tests.execution.killed_slices import Count, open_job

NAMES, TOTALS = TopicPartition("names", 0), TopicPartition("totals", 0)
RECORDS, KEYS = 4_000, 60


def test_a_commit_takes_turns_with_input() -> None:
    """At most two slices go before a frame of the next checkpoint, however many keys are dirty (A8)."""
    task, a0, a1 = driven()
    for first in range(0, 10_000, 500):
        a0.send(1, *(f"key {first + number}" for number in range(500)))
    a0.mark(1)
    a1.mark(1)
    task.log.mute = True
    task.run()
    process = task.runner.process_frame

    def processed(partition: TopicPartition, offset: int, message: bytes, skip: int) -> None:
        task.trace.append(Step("frame"))
        process(partition, offset, message, skip)

    task.runner.process_frame = processed
    for step in ("data", "chunk"):
        task.trace.clear()
        for _ in range(30):
            a0.send(2, "of the next checkpoint")
        answers, task.log.answers = task.log.answers, []
        for answer in answers:
            task.driver.delivered(answer)
        while task.driver.tick():
            pass
        task.log.poll()
        done = [what for what, _ in task.trace if what in (step, "frame")]
        assert done.count(step) >= 9
        assert max(len(list(run)) for what, run in groupby(done) if what == step) <= 2


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
    """A kill at any slice of a checkpoint leaves the right state, and each output once."""
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
