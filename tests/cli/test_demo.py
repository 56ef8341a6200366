"""The demonstration on a small folder: real kills, the comparison, the second run."""

import os
from pathlib import Path

import pytest

from tests.cli.test_run import grete

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
    options = ("demo", "--dir", "docs", "--kills", "1", "--directory", "job", "--set", "interval_ms=50")
    out = grete(*options, cwd=folder)
    assert out.count("uncommitted records void") == 2  # the one whose state is deleted too
    assert "again, in its restore" in out
    assert f"{FILES} documents, {FILES * 10} words" in out
    assert "The index is identical." in out
    assert 'search "' in out
    out = grete(*options, cwd=folder)
    assert "nothing to do twice" in out or "too few for killing workers" in out
    assert "Indexed 0 new, changed or deleted documents" in out
    assert "The index is identical." in out
    (folder / "docs" / "3.txt").write_text("another text")
    (folder / "docs" / "4.txt").unlink()
    out = grete(*options, cwd=folder)
    assert "Indexed 2 new, changed or deleted documents" in out
    assert f"{FILES - 1} documents" in out
    assert "The index is identical." in out


def test_at_least_once_shows_the_damage(folder: Path) -> None:
    """What was sent and not committed is sent again, and counted twice."""
    out = grete(
        "demo", "--dir", "docs", "--kills", "1", "--guarantee", "at-least-once", "--set", "interval_ms=50", cwd=folder
    )
    assert out.count("to be sent again") == 2
    assert "words miscounted" in out
    assert "counted" in out
    assert "This is what exactly-once prevents" in out
