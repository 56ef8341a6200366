"""`grete export`: all of the state, then its changes; at any moment the directory holds one whole checkpoint."""

import hashlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from grete.cli.commands.export import export
from grete.cli.job_target import NamedJob
from grete.cli.options import StateAt
from grete.errors import ConfigError
from grete.file_lock import open_lock, try_lock
from grete.job.directory import JobDirectory
from grete.logs.address import IN_DIRECTORY
from grete.settings import Settings
from grete.spark.export.manifest import read_manifest
from grete.spark.export.read import read_export
from grete.spark.format.changes import position_at, wirings_of
from grete.state.read.checkpoints.snapshots import snapshots_at
from tests.spark.format.history import REFERENCE, Counts, counts_at, positions, run
from tests.state.pair_job import job

pytestmark = pytest.mark.timeout(300)


def exported(directory: Path, to: Path, checkpoint_id: int | None = None, store: str | None = None) -> None:
    """Run the command."""
    export(NamedJob(REFERENCE, directory, IN_DIRECTORY, Settings), to=to, store=store, at=StateAt(checkpoint_id))


def held(to: Path) -> tuple[int, Counts]:
    """Return the content for a reader: the checkpoint, and the counts at it; the files are as the manifest says."""
    manifest = read_manifest(to)
    assert manifest is not None
    for each in (file for store in manifest.stores for file in store.files):
        assert hashlib.sha256((to / each.path).read_bytes()).hexdigest() == each.sha256
        assert pq.read_metadata(to / each.path).num_rows == each.rows
    rows = read_export(to, "count/counts").to_pylist()
    found = {(row["partition"], row["key"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    return manifest.checkpoint_id, found


def there(directory: Path, checkpoint_id: int) -> Counts:
    """Return the counts that the job had at a checkpoint."""
    log = JobDirectory(directory).open_log(create=False)
    found = counts_at(log, position_at(log, job, job.stages[1], checkpoint_id, aligned=True))
    log.close()
    return found


def kinds(to: Path) -> list[str]:
    """Return the kinds of the files of the counts, in their order."""
    manifest = read_manifest(to)
    assert manifest is not None
    return [file.kind for store in manifest.stores if store.store == "counts" for file in store.files]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a job with a history in which a worker was killed."""
    directory = tmp_path_factory.mktemp("exported") / "job"
    run(directory, 6, frozenset({3}))
    return directory


def ids(directory: Path) -> list[int]:
    """Return the checkpoints that can be read, oldest first."""
    log = JobDirectory(directory).open_log(create=False)
    found = [position.checkpoint_id for position in positions(log)[1:]]
    log.close()
    return found


def test_an_export_is_full_and_then_goes_on_with_changes(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each time it holds the checkpoint that the manifest names, as the job had it; the same one again does nothing."""
    known, to = ids(history), tmp_path / "to"
    for checkpoint_id in (known[1], known[3], known[-1]):
        exported(history, to, checkpoint_id)
        assert held(to) == (checkpoint_id, there(history, checkpoint_id))
    assert kinds(to)[:2] == ["full"] * 2
    assert set(kinds(to)[2:]) == {"changes"}
    capsys.readouterr()
    exported(history, to)
    assert capsys.readouterr().out == f"{to} holds checkpoint {known[-1]}; 0 rows written\n"
    whole = tmp_path / "whole"
    exported(history, whole, store="counts")
    assert "count/counts: all entries, because it is the first export" in capsys.readouterr().out
    assert held(whole) == held(to)
    with pytest.raises(ConfigError, match=f"a later one than {known[1]}: name another directory"):
        exported(history, to, known[1])
    with pytest.raises(ConfigError, match=r"holds count/counts of job 'pair', not split/lines, count/counts of"):
        exported(history, whole)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.parquet").write_text("")
    with pytest.raises(ConfigError, match=r"holds own\.parquet, and no export: name an empty directory"):
        exported(history, tmp_path / "mine")
    with pytest.raises(ConfigError, match="holds no export: grete export JOB --to"):
        read_export(tmp_path / "mine", "counts")


def test_an_export_that_is_killed_at_any_step_is_whole(history: Path, tmp_path: Path) -> None:
    """By SIGKILL before each write, sync, rename and removal: a reader sees the checkpoint before, or the next one."""
    known, begun, to = ids(history), tmp_path / "begun", tmp_path / "to"
    exported(history, begun, known[1])
    before, after = (known[1], there(history, known[1])), (known[-1], there(history, known[-1]))
    seen, step = list[bool | None](), 0
    while not seen or seen[-1] is not None:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(begun, to)
        (to / "stray.grete.parquet").write_text("what a killed export has left")
        done = killed_before(step, lambda: exported(history, to))
        seen.append(None if done else held(to) == after)
        assert held(to) in (before, after)
        exported(history, to)
        assert held(to) == after
        assert not (to / "stray.grete.parquet").exists()
        step += 1
    assert seen.count(False) >= 8
    assert True in seen


def killed_before(step: int, work: Callable[[], None]) -> bool:
    """Do the work in a fork that kills itself before a step on the disk; return whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def dying(original: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return original(*arguments, **named)

            return call

        os.fsync = dying(os.fsync)
        pq.ParquetWriter.write_table = dying(pq.ParquetWriter.write_table)
        Path.replace = dying(Path.replace)
        Path.unlink = dying(Path.unlink)
        try:
            work()
        except BaseException:  # noqa: BLE001  # else the fork would go on as a second pytest
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def test_where_changes_are_gone_all_is_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says why; the files before are left to their readers until the next export."""
    directory, to = tmp_path / "job", tmp_path / "to"
    run(directory, 3)
    exported(directory, to)
    old = {path.name for path in to.glob("*.parquet")}
    run(directory, 6)
    log = JobDirectory(directory).open_log(create=False)
    offsets = {number: place.offset for number, place in positions(log)[-1].places.items()}
    for number, snapshot in snapshots_at(log, job, job.stages[1], offsets):
        log.trim(wirings_of(job, job.stages[1])[number].changelog, snapshot.commit.base)
    log.close()
    exported(directory, to)
    assert "count/counts: all entries, because task count-0: changes since" in capsys.readouterr().out
    assert set(kinds(to)) == {"full"}
    assert old <= {path.name for path in to.glob("*.parquet")}
    assert held(to)[1] == there(directory, held(to)[0])


def test_a_second_export_into_a_directory_is_refused(history: Path, tmp_path: Path) -> None:
    """Two at once would write files that the manifest of neither names; the lock ends with its process."""
    handle = open_lock(tmp_path / ".lock")
    try_lock(handle)
    with pytest.raises(ConfigError, match=f"another export writes into {tmp_path}: wait until it has ended"):
        exported(history, tmp_path)
    assert read_manifest(tmp_path) is None
    os.close(handle)
    exported(history, tmp_path)
    assert read_manifest(tmp_path) is not None
