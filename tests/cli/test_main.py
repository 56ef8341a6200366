"""The command line's errors: one clear line, the right exit code, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grete.cli import command_line
from tests.support import forking

ROOT = Path(__file__).parents[2]


def grete(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command in this process; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["grete", *arguments])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        command_line()
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands make .grete below the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "no_such_module"], "no module 'no_such_module'"),
        (["run", "missing.py"], "no file missing.py"),
        (["run", "tasks.word_count", "--set", "speed=9"], "unknown setting 'speed'"),
        (["run", "tasks.word_count", "--set", "checkpoint_interval_ms"], "write NAME=VALUE"),
        (["run", "tasks.word_count", "--set", "checkpoint_interval_ms=fast"], "must be an integer"),
        (["run", "tasks.word_count", "--set", "processing_guarantee=maybe"], "maybe"),
        (["run", "tasks.word_count", "--log", "kafka://host"], "write embedded or kafka://host:port"),
        (["run", "tasks.word_count", "--log", "pulsar"], "write embedded or kafka://host:port"),
        (["run", "tasks.word_count", "--log", "kafka://u:p" + "@host:1"], "users and passwords are options (sasl.*)"),
        (["run", "tasks.word_count", "--input", "letters=x"], "TOPIC one of sentences"),
        (["run", "tasks.word_count", "--input", "sentences=missing.txt"], "No such file"),
        (["run", "tasks.word_count", "--input", "sentences=/"], "/ is a folder"),
        (["run", "tasks.word_count", "--input-dir", "missing"], "no folder missing"),
        (["run", "tasks.join", "--input-dir", "."], "--input-dir needs one"),
        (["run", "tasks.word_count", "--directory", "file"], "file is not a directory"),
        (["up", "tasks.word_count", "--log", "kafka"], "write embedded or kafka://host:port"),
        (["up", "tasks.word_count", "--hide-values"], "--set show_records=keys"),
        (["checkpoints", "tasks.word_count"], "run it first: grete run tasks.word_count"),
        (["state", "get", "tasks.word_count", "counts", "x"], "run it first"),
        (["changelog", "verify", "tasks.word_count", "--directory", "file"], "no job has run in file"),
        (["topic", "read", "tasks.word_count", "word-totals"], "run it first"),
        (["new", "Bad Name"], "cannot name a project"),
        (["new", "there"], "cannot make there: File exists"),
    ],
)
def test_mistakes_are_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """Exit code 2, the mistake in one line on standard error."""
    Path("file").write_text("")
    Path("there").mkdir()
    assert grete(monkeypatch, *arguments) == 2
    shown = capfd.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith("grete: ")
    assert words in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sped"], "--sped"),
        (["--directory", ""], "'--directory': it is empty"),  # of a variable without a value: not this folder
        (["--settings", ""], "'--settings' (env var: 'GRETE_SETTINGS'): it is empty"),
    ],
)
def test_wrong_usage_is_explained(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    """An option that does not exist or is empty, as every command line has it."""
    assert grete(monkeypatch, "run", "tasks.word_count", *options) == 2
    assert words in capfd.readouterr().err
    assert list(Path().iterdir()) == []


def test_closed_standard_files_are_not_taken_by_others(tmp_path: Path) -> None:
    """A library in C prints to standard error: that does not go into the next file that was opened."""
    shown = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in range(3)], file=open('files', 'w'))"
    code = f"from grete.cli import command_line\ntry: command_line()\nfinally: {shown}"
    command = [sys.executable, "-c", code, "run", "tasks.word_count", "--input", "sentences=-"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, (tmp_path / "files").read_text()) == (2, f"{['/dev/null'] * 3}\n")


def test_closed_input_is_named(tmp_path: Path) -> None:
    """A file is read from nowhere else: exit code 2 and a line."""
    command = [sys.executable, "-m", "grete.cli", "run", "tasks.word_count", "--input", "sentences=-"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("grete: --input sentences=-: standard input is closed: pipe the lines in, or name a file\n")


def test_output_that_has_no_room_is_an_error(tmp_path: Path) -> None:
    """A command that reads ends with 1 and a line. One that goes on for long leaves out what is not taken."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "grete.cli", "--help"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "grete: standard output or a file: No space left on device: make room, or check the disk, and start again\n"
    )


def test_without_assertions_nothing_starts(tmp_path: Path) -> None:
    """Under -O a broken invariant would be written to the log instead of stopping."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-O", "-m", "grete.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "do not run it under python -O" in done.stderr


def test_a_corrupt_log_halts(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Exit code 4: a person must look; the error names the file and what to do."""
    Path("job").mkdir()
    Path("job/log.db").write_bytes(b"this is no database" * 1000)
    for arguments in (["run", "tasks.word_count"], ["checkpoints", "tasks.word_count"]):
        assert grete(monkeypatch, *arguments, "--directory", "job") == 4
        assert "job/log.db" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["backfill", "audit"])
@pytest.mark.parametrize("package", ["numpy", "pyarrow", "pyspark"])
def test_a_missing_extra_is_named(tmp_path: Path, command: str, package: str) -> None:
    """Without a package of the extra both commands say what to install, and begin nothing."""
    code = f"import sys; sys.modules[{package!r}] = None; from grete.cli import command_line; command_line()"
    done = subprocess.run(
        [*forking.TEXT, code, command, "tasks.word_count", "--directory", "job"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (2, []), done.stderr
    assert done.stderr == f"grete: {package}: not installed; Spark needs the extra: pip install 'grete[spark]'\n"
