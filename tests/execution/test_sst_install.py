"""Real workers take a backfill's files on an empty disk, are killed meanwhile, and never believe them (0017, R1)."""

import base64
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.logs.embedded import EmbeddedLog
from grete.protocol.changelog_position import decode_changelog_position, encode_changelog_position
from grete.settings import Settings
from grete.state.read.local_reader import LocalReader
from grete.state.write.bulk.bulk_write import begin, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt
from grete.stores.rocksdb.sst_snapshot import SstBuilder, publish
from tasks.word_count import CountWords
from tasks.word_count import job as word_count
from tests.worker.workers import SENTENCES, TASK, WorkerUnderTest, say, until_committed, word_log

STORE = 10
WORDS = 4_000
TAKEN, REFUSED = "state taken from files of a backfill", "files of a backfill cannot be used, reading the changelog"


def backfilled(directory: Path, count: int = 1, *, files: bool = True) -> EmbeddedLog:
    """Write a state, each word ``count`` times, as a run and as files of a few KB; return the log."""
    log = word_log(directory)
    run = begin(log, word_count, Settings())
    columns = (
        [STORE] * WORDS,
        [b"word-%06d" % number for number in range(WORDS)],
        [count.to_bytes(8, "big")] * WORDS,
    )
    attempt = Attempt(log, run, 0, 1, (STORE,))
    attempt.add(*columns)
    (changelog_position,) = commit(log, run, [attempt.close()], settings=Settings(), full=True)
    if files:
        builder = SstBuilder(directory / "work", 16_384)
        builder.add(*columns)
        publish(directory / "work", left(directory), changelog_position, {STORE: "counts"}, builder.close())
    return log


def left(directory: Path) -> Path:
    """Return the folder in which a backfill leaves its files."""
    return JobDirectory(directory).prebuilt(TASK)


def go_live(directory: Path, log: EmbeddedLog, count: int = 1) -> list[str]:
    """Let a worker take one more sentence, look at its whole state; return what it logged."""
    said = log.bounds(SENTENCES)[1]
    say(log, "word-000007 again")
    with WorkerUnderTest(directory) as worker:
        worker.running()
        until_committed(log, said + 1)
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
        events = [json.loads(line)["event"] for line in worker.log_path.read_text().splitlines() if line[:1] == "{"]
    expected = {f"word-{number:06d}": count for number in range(WORDS)}
    with LocalReader(JobDirectory(directory).state_directory, word_count) as reader:
        assert dict(reader.all(CountWords.counts)) == expected | {"word-000007": count + 1, "again": 1}
    assert not left(directory).exists()
    return events


def test_an_empty_disk_takes_the_files(tmp_path: Path) -> None:
    """The state is there at once, and nothing of it is read from the changelog."""
    log = backfilled(tmp_path / "job")
    with WorkerUnderTest(tmp_path / "job") as worker:
        counters = worker.running()["counters"]
    assert (counters.get("restores", 0), counters.get("restored records", 0)) == (0, 0)
    assert not left(tmp_path / "job").exists()
    events = go_live(tmp_path / "job", log)
    assert TAKEN not in events
    log.close()


@pytest.mark.parametrize("step", ["first file", "some file", "changelog position", "deletion"])
def test_a_kill_meanwhile_costs_nothing(tmp_path: Path, step: str) -> None:
    """After a kill before any file, between two, or before the changelog position, the work is done again.

    After a kill before the deletion it is done already.
    """
    log = backfilled(tmp_path / "job")
    files = len(list(left(tmp_path / "job").glob("*.sst")))
    number = {"first file": 0, "some file": files // 2, "changelog position": files, "deletion": files + 1}[step]
    command = [sys.executable, "-m", "tests.execution.killed_ingests", str(number), "worker", "tasks.word_count"]
    killed = subprocess.run([*command, "--partition=0", f"--directory={tmp_path / 'job'}"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(left(tmp_path / "job").glob("*.sst"))) == files > 3
    assert (TAKEN in go_live(tmp_path / "job", log)) == (step != "deletion")
    log.close()


def _cut(directory: Path) -> None:
    file = max(left(directory).glob("*.sst"))
    file.write_bytes(file.read_bytes()[:-100])


def _foreign(directory: Path) -> None:
    other = directory.parent / "other" / "job"
    backfilled(other, count=9).close()
    shutil.rmtree(left(directory))
    left(other).rename(left(directory))


def _beyond(directory: Path) -> None:
    """Say that they are of a commit that the log does not reach.

    A changelog position that says so would halt the task.
    """
    file = left(directory) / "manifest.json"
    manifest = json.loads(file.read_text())
    changelog_position = decode_changelog_position(base64.b64decode(manifest["pointer"]))
    manifest["pointer"] = base64.b64encode(
        encode_changelog_position(changelog_position._replace(offset=1_000_000))
    ).decode()
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize("damage", [_cut, _foreign, _beyond])
def test_files_that_are_wrong_cost_time_and_no_truth(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Damaged, of another log, of a commit that is not there: the worker says so, and reads the changelog."""
    log = backfilled(tmp_path / "job")
    damage(tmp_path / "job")
    events = go_live(tmp_path / "job", log)
    assert REFUSED in events
    assert TAKEN not in events
    log.close()


@pytest.mark.parametrize("files", [True, False])
def test_a_store_that_is_behind_takes_them_and_what_follows(tmp_path: Path, files: bool) -> None:
    """A second backfill over a job that has run comes by its files, or by the changelog.

    The state is that of the second one, also if files of the first are left over that no worker has seen.
    """
    log = backfilled(tmp_path / "job")
    if files:
        go_live(tmp_path / "job", log)
    backfilled(tmp_path / "job", count=5, files=files).close()
    if not files:
        assert len(list(left(tmp_path / "job").glob("*.sst"))) > 3
    assert TAKEN in go_live(tmp_path / "job", log, count=5)
    log.close()
