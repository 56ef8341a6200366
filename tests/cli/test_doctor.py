"""`grete doctor` on a job with an embedded log: what it finds, what it says to do, and that it writes nothing."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grete.cli.commands.doctor import doctor
from grete.cli.doctor import machine
from grete.cli.doctor.machine import file_system, memory_limit, size_of
from grete.cli.job_target import NamedJob
from grete.errors import ExitCode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY
from grete.settings import MiB, Settings
from grete.worker.logs.open_files import FILES_MAX
from tests.worker.workers import LIMIT_S, say, word_log

JOB = "tasks.word_count"


def findings(directory: Path, capsys: pytest.CaptureFixture[str], settings: Settings | None = None) -> dict[str, Any]:
    """Return the findings by ``what``, as --json prints them."""
    doctor(NamedJob(JOB, directory, IN_DIRECTORY, lambda: settings or Settings()), json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(set(row) == {"level", "what", "where", "value", "remedy", "code"} for row in rows)
    return {row["what"]: row for row in rows}


def everything(directory: Path) -> dict[str, tuple[int, int]]:
    """Return file → (size, time of the last change) of all below a directory, folders among them."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in [directory, *directory.rglob("*")]}


def test_a_job_that_can_run_has_no_errors_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before its first run, and after it; each line has its level."""
    place = tmp_path / "job"
    found = findings(place, capsys)
    assert not place.exists()
    assert {row["level"] for row in found.values()} == {"ok"}
    log = word_log(place)
    say(log, "a b")
    log.close()
    before = everything(place)
    found = findings(place, capsys)
    assert found["log"]["value"].startswith("whole, ")
    assert everything(place) == before
    lock = JobDirectory(place).lock_supervisor()
    assert findings(place, capsys)["supervisor"]["value"] == f"process {os.getpid()} runs the job"
    os.close(lock)


def test_a_damaged_log_is_an_error_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table, then what to do; the exit code says it, too."""
    log = word_log(tmp_path / "job")
    say(log, *["a b c d e f g"] * 2_000)
    log.close()
    path = tmp_path / "job" / "log.db"
    content = bytearray(path.read_bytes())
    for page in range(2, len(content) // 4096, 3):
        content[page * 4096 : page * 4096 + 512] = os.urandom(512)
    path.write_bytes(content)
    assert doctor(NamedJob(JOB, tmp_path / "job", IN_DIRECTORY, Settings)) == ExitCode.FAILED
    shown = capsys.readouterr().out
    assert "restore the file from a copy" in shown
    assert "1 errors, 0 warnings" in shown


def test_the_exit_code_says_whether_the_job_can_run(tmp_path: Path) -> None:
    """0: no error; 1: there is one; 2: the command line is wrong."""

    def code(*arguments: str) -> int:
        command = [sys.executable, "-m", "grete.cli", "doctor", *arguments]
        return subprocess.run(command, cwd=tmp_path, timeout=LIMIT_S, capture_output=True, check=False).returncode

    (tmp_path / "job").mkdir()
    assert code(JOB, "--directory=job") == ExitCode.DONE
    (tmp_path / "job" / "log.db").write_bytes(b"SQLite format 3\0" + bytes(5_000))
    assert code(JOB, "--directory=job") == ExitCode.FAILED
    assert code(JOB, "--set=no_such=1") == ExitCode.USAGE


@pytest.mark.parametrize(
    ("what", "changed", "settings", "level"),
    [
        ("free disk space", {"FREE_BYTES_MIN": 1 << 60}, Settings(), "error"),
        ("free inodes", {"INODES_MIN": 1 << 60}, Settings(), "error"),
        ("open files", {"FILES_OF_A_STORE": 1 << 60}, Settings(), "error"),
        ("memory", {}, Settings(rocksdb_bytes=1 << 50), "warning"),
        ("Python", {"TESTED": ()}, Settings(), "warning"),
    ],
)
def test_each_limit_of_the_machine_is_compared(
    what: str,
    changed: dict[str, Any],
    settings: Settings,
    level: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With more asked for than any machine has, it is found, with what to do."""
    for name, value in changed.items():
        monkeypatch.setattr(machine, name, value)
    found = findings(tmp_path / "job", capsys, settings)[what]
    assert found["level"] == level
    assert found["remedy"]


def under(limit: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code of the command under a ``ulimit``, and what it says of open files."""
    command = f"ulimit {limit}; exec {sys.executable} -m grete.cli doctor {JOB} --json {' '.join(options)}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    (found,) = [row for row in rows if row["what"] == "open files"]
    return done.returncode, found


def test_a_real_limit_of_open_files_is_found(tmp_path: Path) -> None:
    """For a process of its own: this one may have many open. A soft limit is none, as workers raise it."""
    place = f"--directory={tmp_path / 'job'}"
    code, found = under("-n 150", place)
    assert (code, found["level"], "may have 150," in found["value"]) == (1, "error", True)
    code, found = under("-Sn 150", place)
    assert (code, found["level"]) == (0, "ok")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or f"may have {min(hard, FILES_MAX):,}," in found["value"]


def test_partitions_that_share_a_process_need_its_files(tmp_path: Path) -> None:
    """A process for each partition is enough where one for all is not."""
    (tmp_path / "wide.py").write_text(
        "from grete import Job\nfrom tasks.word_count import CountWords\n\n"
        "job = Job('wide', stages=[CountWords], partitions=8)\n"
    )
    job = load_job(str(tmp_path / "wide.py"))
    assert [machine.tasks_of_a_worker(job, processes) for processes in (8, 3, 1, 16)] == [1, 3, 8, 1]


def test_sizes_and_kinds_are_those_of_the_system(tmp_path: Path) -> None:
    """Sizes of files, the file system of a mount, the memory of the machine."""
    (tmp_path / "file").write_bytes(bytes(1_000))
    assert size_of(tmp_path) == 1_000
    assert file_system(Path("/proc/self")) in ("proc", "unknown")
    assert memory_limit() > 100 * MiB


def test_the_folder_of_snapshots_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No snapshot, one of each task, a damaged one, and a folder that cannot be read; the commands do as they say."""
    place, url = tmp_path / "job", f"file://{tmp_path}/folder"
    settings = Settings(snapshot_url=url)
    found = findings(place, capsys, settings)["snapshots"]
    assert (found["level"], found["value"]) == ("warning", "0 of 1 tasks have one that is whole")
    assert "run `grete snapshot`: without one a new machine reads the whole changelog of " in found["remedy"]
    log = word_log(place)
    say(log, "a b")
    log.close()
    for command in (["run"], ["snapshot", "--to", url]):
        arguments = [sys.executable, "-m", "grete.cli", command[0], JOB, "--directory", str(place), *command[1:]]
        subprocess.run(arguments, check=True, timeout=LIMIT_S, capture_output=True)
    found = findings(place, capsys, settings)["snapshots"]
    assert (found["level"], found["value"]) == ("ok", "1 of 1 tasks have one that is whole")
    (manifest, *_) = sorted((tmp_path / "folder").glob("*/*/*.json"))
    manifest.write_bytes(b"x")
    both = findings(place, capsys, settings)
    assert both["snapshot"]["level"] == "warning"
    assert "is damaged: its digest is not that of its name" in both["snapshot"]["value"]
    assert both["snapshots"]["value"] == "0 of 1 tasks have one that is whole"
    away = Settings(snapshot_url="memory://")
    assert findings(place, capsys, away)["snapshots"]["value"] == "0 of 1 tasks have one that is whole"
    (tmp_path / "file").write_text("no folder")
    blocked = findings(place, capsys, Settings(snapshot_url=f"file://{tmp_path}/file"))["snapshots"]
    assert blocked["level"] == "error"
    assert "cannot list" in blocked["value"]
