"""A store with ttl_ms in worker processes that die by SIGKILL: nothing comes out twice or is lost, as in one pass."""

import random
import time
from pathlib import Path

import pytest

from grete import Job
from grete.api.tasks.mode import Mode
from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord, JobLog
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.read.checkpoints.snapshots import snapshots
from grete.state.read.local_reader import LocalReader
from grete.state.read.newest import NewestReader
from grete.state.read.snapshot_reader import SnapshotReader
from grete.state.write.moving.entries import entries_of
from grete.state.write.moving.routes import routes_of
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.support.forgetful import NAME, PARTITIONS, TTL_MS, Forget, expected, forgetting
from tests.worker.workers import LIMIT_S

EACH = 4_000  # records of a partition
PARTS = 4  # of the input: a worker is killed while the second and each later one is processed


def numbered(partition: int) -> list[tuple[int, int]]:
    """Return (number, timestamp): eight times TTL_MS in all, numbers that come again after 0 to 2 of it."""
    draw, step = random.Random(partition), 8 * TTL_MS // EACH
    return [
        (place - draw.randrange(EACH // 4), 1_600_000_000_000 + place * step + draw.randrange(40 * step))
        for place in range(EACH)
    ]


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_killed_workers_forget_nothing_early_and_nothing_late(tmp_path: Path, mode: Mode) -> None:
    """Outputs and state are those of one plain pass; each reader shows what the code of the task would see."""
    file = tmp_path / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.support.forgetful import forgetting\njob = forgetting({mode!r})\n"
    )
    job, job_directory = forgetting(mode), JobDirectory(tmp_path / "place")
    settings = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
    parts = [numbered(partition) for partition in range(PARTITIONS)]
    with LocalJob(job, str(file), job_directory, settings, inputs=OutsideInputs([f"{NAME}-numbers"])) as run:
        log = job_directory.open_log()
        for begin in range(0, EACH, EACH // PARTS):
            fed = [
                ExternalRecord(TopicPartition(f"{NAME}-numbers", number), b"k", value.to_bytes(8, signed=True), at)
                for number, part in enumerate(parts)
                for value, at in part[begin : begin + EACH // PARTS]
            ]
            log.produce(0, 0, fed)
            while not log.poll():
                log.wait(100)
            deadline = time.monotonic() + LIMIT_S
            while sum(run.committed().values()) <= begin:
                assert time.monotonic() < deadline, run.checkpoint_ids()
                run.poll(20)
            if begin:
                run.supervisor.kill(begin // (EACH // PARTS) % 2)
        deadline = time.monotonic() + LIMIT_S
        while not run.drained(run.ends()):
            assert time.monotonic() < deadline, run.checkpoint_ids()
            run.poll(20)
        run.stop()
    sent = [
        int.from_bytes(row.value or b"", signed=True)
        for number in range(PARTITIONS)
        for row in log.read(TopicPartition(f"{NAME}-firsts", number), 0, 1 << 24)
    ]
    wanted = [expected(part) for part in parts]
    assert sorted(sent) == sorted(number for each, _ in wanted for number in each)
    _check_readers(log, job, job_directory.state_directory, [seen for _, seen in wanted])
    log.close()


def _check_readers(log: JobLog, job: Job, directory: Path, wanted: list[dict[int, int]]) -> None:
    """Compare what each reader shows, by partition: of the local stores, of the changelogs, of what a fork takes."""
    everything = [row for seen in wanted for row in seen.items()]
    with LocalReader(directory, job) as local:
        for number, seen in enumerate(wanted):
            assert dict(local.all(Forget.seen, number)) == seen
            assert [dict(local.find(Forget.seen, key)).get(number) for key in range(0, EACH, 50)] == [
                seen.get(key) for key in range(0, EACH, 50)
            ]
    with NewestReader(log, job, directory, pytest.fail) as newest:
        assert list(newest.all(Forget.seen)) == everything
        sizes = list(newest.sizes(Forget.seen))
    said = list[str]()
    with NewestReader(log, job, directory / "elsewhere", said.append) as newest:
        assert list(newest.all(Forget.seen)) == everything
        assert list(newest.sizes(Forget.seen)) == sizes  # a restored state is the live one, byte by byte
    assert len(said) == 2 * PARTITIONS
    for size, seen in zip(sizes, wanted, strict=True):
        assert (size.task[:7], size.store, size.size_bytes) == ("forget-", "seen", size.entries * (8 + 8 + 8))
        assert len(seen) <= size.entries <= EACH  # how many are deleted by now goes by the checkpoints that were made
        assert size.oldest_ms is not None
        assert size.oldest_ms <= min(seen.values())
    found = snapshots(log, job, None, aligned=job.modes == "aligned")
    assert list(SnapshotReader(log, job, found).all(Forget.seen)) == everything
    store = job.stages[0].store_ids()["seen"]
    moved = [row for route in routes_of(job, job, found, {}, is_whole=True) for row in entries_of(log, route)]
    assert sum(number == store for number, _, _ in moved) == len(everything)
