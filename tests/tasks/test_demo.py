"""The demonstration on a small folder: real kills, the comparison, the second run."""

import os
from pathlib import Path

import pytest

from tests.cli.test_run import grete, start

FILES = 24
LONG_AGO_S = 1_700_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of small documents with the same words."""
    root = tmp_path / "docs"
    root.mkdir()
    for number in range(FILES):
        path = root / f"{number}.txt"
        path.write_text(f"all the same words and one of its own {number}")
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))  # what has just been written is read again by the next run
    return tmp_path


def test_exactly_once_is_identical_after_kills(folder: Path) -> None:
    """Workers die with uncommitted records and in a restore; the second run does nothing twice, the third one file."""
    options = ("--dir", "docs", "--kills", "1", "--directory", "job", "--set", "checkpoint_interval_ms=200")
    out = grete(*options, cwd=folder, module="tasks.demo")
    assert out.count("uncommitted records rolled back") == 2  # the one whose state is deleted too
    assert "again, in its restore" in out
    assert f"{FILES} documents, {FILES * 10} words" in out
    assert "The index is identical." in out
    assert 'search "' in out
    out = grete(*options, cwd=folder, module="tasks.demo")
    assert "nothing to do twice" in out or "too few for killing workers" in out
    assert "Indexed 0 new, changed or deleted documents" in out
    assert "The index is identical." in out
    (folder / "docs" / "3.txt").write_text("another text")
    (folder / "docs" / "4.txt").unlink()
    out = grete(*options, cwd=folder, module="tasks.demo")
    assert "Indexed 2 new, changed or deleted documents" in out
    assert f"{FILES - 1} documents" in out
    assert "The index is identical." in out


def test_at_least_once_shows_the_damage(folder: Path) -> None:
    """An output that was sent and not committed is sent again, and counted twice."""
    out = grete(
        "--dir",
        "docs",
        "--kills",
        "1",
        "--guarantee",
        "at-least-once",
        "--set",
        "checkpoint_interval_ms=200",
        cwd=folder,
        module="tasks.demo",
    )
    assert out.count("to be sent again") == 2
    assert "words miscounted" in out
    assert "counted" in out
    assert "This is what exactly-once prevents" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--log", "pulsar"), "write embedded or kafka://host:port"),
        (("--dir", "missing"), "no such folder"),
        (("--guarantee", "maybe"), "exactly-once or at-least-once"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """Exit code 2, the mistake in one line on standard error."""
    process = start(*arguments, cwd=tmp_path, module="tasks.demo")
    _, error = process.communicate()
    assert process.returncode == 2
    (line,) = error.splitlines()
    assert words in line
