"""The script that repeats the demonstration's job runs, and finds the index right."""

from pathlib import Path

import pytest

from tests.verification.chaos.hundred_runs import FILES, one_run, write_folder

pytestmark = pytest.mark.chaos


def test_one_of_the_hundred_runs(tmp_path: Path) -> None:
    """Kills at random moments, wiped states among them, change nothing."""
    folder = tmp_path / "folder"
    write_folder(folder)
    assert len(list(folder.iterdir())) == FILES
    run = one_run(folder, tmp_path / "job", seed=4, kills=2)
    assert (run.kills, run.differences) == (2, 0)
